"""From finished blocks to a store: failures apart, rows clustered, the manifest last."""

from __future__ import annotations

from typing import NoReturn

from ghost_ray.checks import of_set
from ghost_ray.cluster.sampling import look_at
from ghost_ray.cluster.shuffle import arrange
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import JobFailed
from ghost_ray.files import join, remove_tree
from ghost_ray.files.manifest import provenance
from ghost_ray.jobs.extract.accuracy import accuracy_notes
from ghost_ray.jobs.extract.extract_plan import Plan
from ghost_ray.jobs.extract.resume import remove_work
from ghost_ray.jobs.extract.survey import Outcome
from ghost_ray.jobs.extract.work_files import block_files
from ghost_ray.store import Store, StoreManifest, finish_store, row_schema, write_failures, write_head


def commit(config: ExtractConfig, plan: Plan, staging: str, result: Outcome) -> None:
    """Write the store beside the blocks it is made of, the manifest last, and then remove the blocks.

    Raises
    ------
    JobFailed
        If rows and failures do not add up to what was listed.
    """
    network, data = plan.network, plan.data
    # A choice of images does not depend on what could not be listed.
    found = result.images if plan.wanted is None else result.listed
    if plan.exact and found != plan.images:
        _refuse(f"{plan.images:,} images were listed at first, {found:,} when they were read: the data changed")
    remove_tree(join(staging, "rows"))  # of a commit that was killed
    files = arrange(
        block_files(staging), staging, row_schema(network.dimensions), network.classes, [("failed", "==", False)]
    )
    rows = sum(file.rows for file in files)
    if rows + result.without_row != result.images:
        _refuse(f"{rows:,} rows and {result.without_row:,} failures are not the {result.images:,} images listed")
    write_failures(staging, result.failures)
    write_head(staging, plan.head)
    manifest = StoreManifest(
        **provenance(config),
        network=network,
        data=[data if data.fingerprint else data.model_copy(update={"fingerprint": result.fingerprint})],
        rows=rows,
        layout="clustered",
        order="hash",
        class_names=plan.class_names,
        has_head=True,
        failures=result.without_row,
        seconds={name: round(value, 3) for name, value in result.seconds.items()},
        batch_size=result.batch_size,
    )
    looked_at = look_at(Store(staging, manifest, files))
    images = manifest.rows + manifest.failures
    notes = [*accuracy_notes(network.name, images, looked_at.labels, network.classes), *of_set(looked_at)]
    finish_store(staging, manifest.model_copy(update={"notes": notes, "accuracy": looked_at.labels.accuracy}), files)
    remove_work(staging)


def _refuse(problem: str) -> NoReturn:
    raise JobFailed(f"{problem}; no store was published — run the same command again")
