"""What there is to do: which images, which labels, which network. Everything wrong is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ghost_ray.backbone import Backbone, load_backbone
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError
from ghost_ray.extract.pixels import Preprocessing, split_transform
from ghost_ray.files import redact
from ghost_ray.manifest import Data, Network
from ghost_ray.sources import Failure, LabelMap, Reader, Source, load_classes, map_labels, open_source, select
from ghost_ray.store import UNKNOWN, Store


@dataclass(frozen=True)
class Recipe:
    """How an actor builds the network; small, it travels to every one of them."""

    model: str
    weights: str | None
    precision: str
    compile: bool
    restrict: tuple[int, ...] | None

    def load(self, device: str | None = None) -> Backbone:
        return load_backbone(self.model, self.weights, device, self.precision, self.compile, self.restrict)


@dataclass(frozen=True)
class Demand:
    """What the network asks of whoever runs it on CPUs."""

    bytes: int  # of its weights
    seconds: float  # for an image, on the driver's machine


@dataclass(frozen=True)
class Plan:
    """A run, before anything was computed.

    ``items`` has a row an image: key, file, start, size as in the source, and label as an index into the head.
    """

    items: pa.Table
    reader: Reader
    recipe: Recipe
    preprocessing: Preprocessing
    network: Network
    demand: Demand
    head: tuple[np.ndarray, np.ndarray]
    data: Data
    class_names: list[str] | None
    failures: list[Failure]  # found while listing
    notes: list[str]

    @property
    def images(self) -> int:
        """How many images there are, those that could not even be listed included."""
        return self.items.num_rows + len(self.failures)


def make_plan(config: ExtractConfig, restrict: Sequence[int] | None = None) -> Plan:
    """Open the data and the network and bring them together; no image is read.

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
    # The facts of the network do not depend on where it runs; the actors find out about their own devices.
    backbone = load_backbone(config.model, config.weights, device="cpu")
    labels = None if config.unknown else _labels(config, source, backbone.classes)
    if config.restrict_like is not None:
        restrict = Store.open(config.restrict_like, "--restrict-like").manifest.network.restricted_to
    elif labels is not None and config.restrict:
        restrict = labels.present()
        if not restrict:
            raise InputError("--restrict", True, "there is no known class in the data to narrow the head to")
    if restrict is not None:
        backbone = backbone.restrict(restrict)
        labels = None if labels is None else labels.restricted(restrict)
    chosen = select(source.items, config.limit, config.per_class, config.seed)
    indices = np.full(chosen.num_rows, UNKNOWN, np.int32) if labels is None else labels.apply(chosen["label"])
    items = chosen.set_column(chosen.schema.get_field_index("label"), "label", pa.array(indices))
    network = Network(
        name=config.model,
        weights_sha256=backbone.weights_sha256,
        classes=backbone.classes,
        dimensions=backbone.dimensions,
        preprocessing=backbone.preprocessing,
        restricted_to=backbone.restricted_to,
    )
    return Plan(
        items=items,
        reader=source.reader,
        recipe=Recipe(
            config.model,
            config.weights,
            config.precision,
            config.compile,
            None if restrict is None else tuple(restrict),
        ),
        preprocessing=split_transform(backbone.transform),
        network=network,
        demand=Demand(backbone.bytes, backbone.seconds_an_image),
        head=backbone.head,
        data=Data(uri=redact(source.uri), kind=source.kind, fingerprint=source.fingerprint),
        class_names=labels.class_names if labels is not None else None,
        failures=[] if config.limit or config.per_class else source.failures,
        notes=labels.notes if labels is not None else [],
    )


def _labels(config: ExtractConfig, source: Source, classes: int) -> LabelMap:
    explicit = load_classes(config.classes) if config.classes else None
    return map_labels(source, classes, explicit)
