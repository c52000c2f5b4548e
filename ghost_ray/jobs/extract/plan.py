"""What there is to do: which images, which labels, which network. Everything wrong is refused here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.cluster.session import begin_on_this_node, ray_is_joined
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError, redact
from ghost_ray.files.manifest import Data, Network
from ghost_ray.jobs.extract.blocks import ShardGroup, group_shards
from ghost_ray.jobs.extract.census import Census, take_census
from ghost_ray.jobs.extract.decode import Preprocessing, split_transform
from ghost_ray.jobs.extract.embed import NetworkSpec
from ghost_ray.jobs.extract.listing import Lister, Wanted
from ghost_ray.rows import Head
from ghost_ray.sources import (
    Choice,
    LabelMap,
    OnlyKeys,
    Source,
    list_all,
    load_classes,
    map_labels,
    open_source,
    rule_is_clear,
)
from ghost_ray.store import UNKNOWN, Store


@dataclass(frozen=True)
class NetworkPlan:
    """What a plan needs to know of a network. It comes from a process that has torch, to one that may not."""

    weights_sha256: str  # of all tensors, before the head was narrowed
    head: Head
    description: dict[str, Any]  # of its preprocessing, for the manifest
    preprocessing: Preprocessing
    bytes: int  # of its weights
    seconds_an_image: float  # on a CPU of the driver's machine
    restricted_to: list[int] | None = None

    @property
    def classes(self) -> int:
        return len(self.head.weight)

    def restrict(self, classes: Sequence[int]) -> NetworkPlan:
        """The same with only these classes of the whole head, in this order."""
        kept = [int(index) for index in classes]
        if not kept or len(set(kept)) != len(kept) or not set(kept) <= set(range(self.classes)):
            problem = f"must be distinct classes from 0 to {self.classes - 1}, at least one"
            raise InputError("restrict", kept[:5], problem)
        return replace(self, head=Head(self.head.weight[kept], self.head.bias[kept]), restricted_to=kept)


def _open_network(model: str, weights: str | None) -> NetworkPlan:
    from ghost_ray.backbone import network_facts

    facts = network_facts(model, weights)
    return NetworkPlan(
        facts.weights_sha256,
        facts.head,
        facts.preprocessing,
        split_transform(facts.transform),
        facts.bytes,
        facts.seconds_an_image,
    )


def open_network(model: str, weights: str | None) -> Callable[[], NetworkPlan]:
    """Build a network and read off what a plan needs; what is returned waits for that.

    Where Ray is joined, a worker on this machine does it, while the driver looks at the images: the driver of a large
    job lives long, and without torch and timm it takes a quarter of the memory. A driver that has torch does it itself.
    """
    if ray_is_joined() and "torch" not in sys.modules:
        return begin_on_this_node(_open_network, model, weights)
    return partial(_open_network, model, weights)


@dataclass(frozen=True)
class Plan:
    """A run, before anything was computed. Nothing in it grows with the images, only with the shards."""

    source: Source
    groups: list[ShardGroup]
    labels: LabelMap | None  # None: all images are unknowns
    wanted: Wanted | None  # which of the images; None: all
    images: int  # how many there are, those that could not even be listed included; an estimate unless ``exact``
    exact: bool
    spec: NetworkSpec
    preprocessing: Preprocessing
    network: Network
    bytes: int  # of the network's weights
    seconds_an_image: float  # in the network, on a CPU
    head: Head
    notes: list[str]

    @property
    def data(self) -> Data:
        """Where the images are; the fingerprint is None if it needs a complete listing."""
        source = self.source
        return Data(uri=redact(source.uri), kind=source.kind, fingerprint=source.fingerprint)

    @property
    def class_names(self) -> list[str] | None:
        return None if self.labels is None else self.labels.class_names

    def only(self, keys: pa.Array) -> Plan:
        """The same for the images with these keys."""
        return replace(self, wanted=OnlyKeys(keys), images=len(keys), exact=True)

    def lister(self, staging: str, rows: int) -> Lister:
        """What a worker needs to list a group of shards, in blocks of ``rows``."""
        source = self.source
        return Lister(source.reader, source.uri, self.labels, source.class_names, self.wanted, staging, rows)


def list_images(plan: Plan) -> pa.Table:
    """A row for each image that is wanted: key, file, start, size, and label as an index into the head.

    All of them at once, on this machine.
    """
    items = list_all(plan.source).preview.items
    if plan.wanted is not None:
        items = items.filter(pa.array(plan.wanted.keeps(items)))
    indices = np.full(items.num_rows, UNKNOWN, np.int32) if plan.labels is None else plan.labels.apply(items["label"])
    return items.set_column(items.schema.get_field_index("label"), "label", pa.array(indices))


def make_plan(config: ExtractConfig, restrict: Sequence[int] | None = None) -> Plan:
    """Open the data and the network and match them; no image is read.

    Parameters
    ----------
    restrict : sequence of int, optional
        Classes to narrow the head to, where the options of ``config`` do not say.

    Raises
    ------
    InputError
        For anything in the data, the labels or the network that could not work.
    """
    explicit = load_classes(config.classes) if config.classes else None
    opened = open_network(config.model, config.weights)
    source = open_source(config.data, config.format, config.root)
    network = opened()
    groups = group_shards(source)
    sampled = config.limit is not None or config.per_class is not None
    choice = Choice(config.limit, config.per_class, config.seed) if sampled else None
    clear = config.unknown or rule_is_clear(source, explicit, network.classes)
    census = None
    if source.preview.complete:
        census = replace(Census.of(source.preview.items, choice), lost=source.preview.lost)
    elif choice is not None or config.restrict or not clear:
        census = take_census(config, source, groups, choice)
    if config.per_class is not None and census is not None and not census.labels.values:
        raise InputError("per_class", config.per_class, "the images are not in classes", "`limit` samples all of them")
    facts = None if census is None else census.labels
    labels = None if config.unknown else map_labels(source, network.classes, explicit, facts)
    if config.restrict_like is not None:
        restrict = Store.open(config.restrict_like, "restrict_like").manifest.network.restricted_to
    elif labels is not None and config.restrict:
        restrict = labels.present()
        if not restrict:
            raise InputError("restrict", True, "there is no known class in the data to narrow the head to")
    if restrict is not None:
        network = network.restrict(restrict)
        labels = None if labels is None else labels.restricted(restrict)
    # For unknowns, the source's own labels are used only for this choice.
    wanted = None if choice is None or census is None else choice.chosen(census.lowest)
    seen = source.preview.images + source.preview.lost if census is None else census.images + census.lost
    images = seen if wanted is None else wanted.images
    return Plan(
        source=source,
        groups=groups,
        labels=labels,
        wanted=wanted,
        images=images,
        exact=census is not None,
        spec=NetworkSpec(
            config.model,
            config.weights,
            config.precision,
            config.compile,
            config.tf32,
            None if restrict is None else tuple(restrict),
            network.weights_sha256,
        ),
        preprocessing=network.preprocessing,
        network=Network(
            name=config.model,
            weights_sha256=network.weights_sha256,
            classes=network.classes,
            dimensions=int(network.head.weight.shape[1]),
            preprocessing=network.description,
            restricted_to=network.restricted_to,
        ),
        bytes=network.bytes,
        seconds_an_image=network.seconds_an_image,
        head=network.head,
        notes=labels.notes if labels is not None else [],
    )
