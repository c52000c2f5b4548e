"""What there is to do: which images, which labels, which network. Everything wrong is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ghost_ray.backbone import network_facts
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError, redact
from ghost_ray.files.manifest import Data, Network
from ghost_ray.jobs.extract.census import Census, take_census
from ghost_ray.jobs.extract.list_stage import Lister, Wanted
from ghost_ray.jobs.extract.pixels import Preprocessing, split_transform
from ghost_ray.jobs.extract.portions import Portion, portions_of
from ghost_ray.jobs.extract.recipe import Recipe
from ghost_ray.rows import Head
from ghost_ray.sources import (
    Choice,
    LabelMap,
    OnlyKeys,
    Source,
    load_classes,
    look_at_all,
    map_labels,
    open_source,
    rule_is_clear,
)
from ghost_ray.store import UNKNOWN, Store


@dataclass(frozen=True)
class Demand:
    """What the network needs on CPUs."""

    bytes: int  # of its weights
    seconds: float  # for an image, on the driver's machine


@dataclass(frozen=True)
class Plan:
    """A run, before anything was computed. Nothing in it grows with the images, only with the parts."""

    source: Source
    portions: list[Portion]
    labels: LabelMap | None  # None: all images are unknowns
    wanted: Wanted | None  # which of the images; None: all
    images: int  # how many there are, those that could not even be listed included; an estimate unless ``exact``
    exact: bool
    recipe: Recipe
    preprocessing: Preprocessing
    network: Network
    demand: Demand
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

    def lister(self, staging: str) -> Lister:
        """What a worker needs to list a portion."""
        source = self.source
        return Lister(source.reader, source.uri, self.labels, source.class_names, self.wanted, staging)


def list_images(plan: Plan) -> pa.Table:
    """A row for each image that is wanted: key, file, start, size, and label as an index into the head.

    All of them at once, on this machine.
    """
    items = look_at_all(plan.source).seen.items
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
    source = open_source(config.data, config.format, config.root)
    backbone = network_facts(config.model, config.weights)
    explicit = load_classes(config.classes) if config.classes else None
    portions = portions_of(source)
    sampled = config.limit is not None or config.per_class is not None
    choice = Choice(config.limit, config.per_class, config.seed) if sampled else None
    clear = config.unknown or rule_is_clear(source, explicit, backbone.classes)
    census = None
    if source.seen.complete:
        census = replace(Census.of(source.seen.items, choice), lost=source.seen.lost)
    elif choice is not None or config.restrict or not clear:
        census = take_census(config, source, portions, choice)
    if config.per_class is not None and census is not None and not census.labels.values:
        raise InputError("per_class", config.per_class, "the images are not in classes", "`limit` samples all of them")
    facts = None if census is None else census.labels
    labels = None if config.unknown else map_labels(source, backbone.classes, explicit, facts)
    if config.restrict_like is not None:
        restrict = Store.open(config.restrict_like, "restrict_like").manifest.network.restricted_to
    elif labels is not None and config.restrict:
        restrict = labels.present()
        if not restrict:
            raise InputError("restrict", True, "there is no known class in the data to narrow the head to")
    if restrict is not None:
        backbone = backbone.restrict(restrict)
        labels = None if labels is None else labels.restricted(restrict)
    # For unknowns, the source's own labels are used only for this choice.
    wanted = None if choice is None or census is None else choice.chosen(census.lowest)
    seen = source.seen.images + source.seen.lost if census is None else census.images + census.lost
    images = seen if wanted is None else wanted.images
    network = Network(
        name=config.model,
        weights_sha256=backbone.weights_sha256,
        classes=backbone.classes,
        dimensions=backbone.dimensions,
        preprocessing=backbone.preprocessing,
        restricted_to=backbone.restricted_to,
    )
    return Plan(
        source=source,
        portions=portions,
        labels=labels,
        wanted=wanted,
        images=images,
        exact=census is not None,
        recipe=Recipe(
            config.model,
            config.weights,
            config.precision,
            config.compile,
            config.tf32,
            None if restrict is None else tuple(restrict),
            backbone.weights_sha256,
        ),
        preprocessing=split_transform(backbone.transform),
        network=network,
        demand=Demand(backbone.bytes, backbone.seconds_an_image),
        head=backbone.head,
        notes=labels.notes if labels is not None else [],
    )
