"""Data to which images were only added: the new images are extracted, and merged with the previous store.

Beside every training store is a list of its images, each with its place, size and label. If all of them are unchanged
in the new data, their embeddings are still valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ghost_ray.cluster import workers
from ghost_ray.cluster.check_sample import count_labels
from ghost_ray.cluster.sort import arrange
from ghost_ray.config import ExtractConfig
from ghost_ray.config.limits import EMBEDDING_OPTIONS
from ghost_ray.errors import InputError
from ghost_ray.files import MANIFEST, OutputFolder, beside, join, kind_of, name_of, resolve
from ghost_ray.files.manifest import provenance
from ghost_ray.store import FAILURES, Store, StoreManifest, finish_store, row_schema, write_failures, write_head

if TYPE_CHECKING:  # imports Torch
    from ghost_ray.jobs.extract.plan import Plan

LISTING = ".listing.parquet"
_FACTS = ["key", "file", "start", "size", "label"]


def extract_growing(config: ExtractConfig, base: str | None, require: Callable[[Plan], None] | None = None) -> None:
    """Extract ``config.out``, from the store ``base`` and the new images if that gives the same rows.

    ``require`` may refuse the plan before anything is extracted.
    """
    from ghost_ray.jobs.extract.job import extract
    from ghost_ray.jobs.extract.plan import list_images, make_plan

    plan = make_plan(config)
    if require is not None:
        require(plan)
    items = list_images(plan).select(_FACTS)
    _write_listing(config.out, items)
    store = None if base is None else _fitting(base, config, plan, items)
    if store is None:
        extract(config, plan)
        return
    new = items["key"].filter(pc.invert(pc.is_in(items["key"], _keys(store)))).combine_chunks()
    delta = config.model_copy(update={"out": _place_of_new(config.out, name_of(store.uri))})
    if kind_of(join(delta.out, MANIFEST)) != "file":
        extract(delta, plan.only(new))
    _join_stores(config, store, Store.open(delta.out))


def grown_from(store: Store) -> tuple[str, Store] | None:
    """The name of the store that ``store`` grew from and the store of new images; None if it was extracted at once."""
    base = (store.manifest.model_extra or {}).get("grown_from")
    if not isinstance(base, str):
        return None
    place = _place_of_new(store.uri, base)
    return (base, Store.open(place)) if kind_of(join(place, MANIFEST)) == "file" else None


def _place_of_new(store: str, base: str) -> str:
    # Named after the base as well: which images are new depends on it.
    return beside(store, f".since-{base}")


def _fitting(base: str, config: ExtractConfig, plan: Plan, items: pa.Table) -> Store | None:
    """The old store, if all of its rows would still be the same and there are new ones."""
    try:
        store = Store.open(base)
        filesystem, path = resolve(beside(base, LISTING))
        before = pq.read_table(path, filesystem=filesystem, schema=items.schema)
    except (InputError, OSError, pa.ArrowException):
        return None
    made = store.manifest
    settings = config.model_dump(mode="json")
    if any(made.config.get(name) != settings[name] for name in EMBEDDING_OPTIONS):
        return None
    if (made.network, made.class_names) != (plan.network, plan.class_names) or made.data[0].uri != plan.data.uri:
        return None
    missing = before.join(items, keys=_FACTS, join_type="left anti")
    return store if missing.num_rows == 0 and items.num_rows > before.num_rows else None


def _write_listing(out: str, items: pa.Table) -> None:
    filesystem, path = resolve(beside(out, LISTING))
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    pq.write_table(items, path, filesystem=filesystem)


def _keys(store: Store) -> pa.Array:
    keys = [store.read_small(groups, "key")["key"] for groups in store.row_groups()]
    return pa.chunked_array([chunk for column in keys for chunk in column.chunks], pa.string()).combine_chunks()


def _join_stores(config: ExtractConfig, old: Store, new: Store) -> None:
    """Write the rows of both as one store, as if it had been extracted at once."""
    files = [join(store.uri, "rows", file.name) for store in (old, new) for file in store.files]
    head = new.head()
    assert head is not None  # extract always writes one
    with OutputFolder(config.out, kind="store", overwrite=True) as output:
        with workers(config):
            written = arrange(files, output.staging, row_schema(new.dimensions), new.classes)
            counted = count_labels(Store(output.staging, new.manifest, written))
        # Images that failed before were retried, so the new failures are complete.
        filesystem, path = resolve(join(new.uri, FAILURES))
        write_failures(output.staging, pq.read_table(path, filesystem=filesystem))
        write_head(output.staging, head)
        facts = new.manifest.model_dump(include={"network", "data", "class_names", "failures", "seconds"})
        manifest = StoreManifest(
            **provenance(config),
            **facts,
            rows=sum(file.rows for file in written),
            layout="clustered",
            order="hash",
            accuracy=counted.accuracy,
            grown_from=name_of(old.uri),
        )
        finish_store(output.staging, manifest, written)
        output.publish()
