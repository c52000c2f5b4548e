"""The job: plan → stream, as often as it takes → check → commit."""

from __future__ import annotations

import os
import re
import time
from functools import partial
from typing import NamedTuple, TypedDict

from ghost_ray.cluster import cluster_cpus, named_cluster, ray_session, require_places, workers
from ghost_ray.cluster.faults import can_be_ended, lost_something
from ghost_ray.config import ExtractConfig
from ghost_ray.config.policies import STREAM_ROUNDS
from ghost_ray.errors import GateFailed, GhostRayError, InputError, JobFailed, one_line, redact
from ghost_ray.files import OutputFolder, join
from ghost_ray.jobs.extract.block_cutter import rows_per_block
from ghost_ray.jobs.extract.census import refuse_repeated_keys
from ghost_ray.jobs.extract.commit import commit
from ghost_ray.jobs.extract.extract_plan import Plan, make_plan
from ghost_ray.jobs.extract.here import runs_here, stream_here
from ghost_ray.jobs.extract.list_stage import Todo
from ghost_ray.jobs.extract.losses import Device
from ghost_ray.jobs.extract.network_client import end_kept_template
from ghost_ray.jobs.extract.pool import plan_pool
from ghost_ray.jobs.extract.quarantine import Quarantine
from ghost_ray.jobs.extract.resume import claim, left_to_do, made_differently
from ghost_ray.jobs.extract.survey import Outcome, survey
from ghost_ray.jobs.extract.tally import Reporter, hopeless, tallying_here
from ghost_ray.progress import say
from ghost_ray.sources.catalogue import format_setting
from ghost_ray.store import FAILURES, Store, write_failures


class ExtractedStore(TypedDict):
    """What a finished store holds."""

    store: str
    rows: int
    failures: int
    classes: int
    dimensions: int
    accuracy: float | None  # None if no row has a label
    seconds: dict[str, float]  # spent in each stage, over all workers
    notes: list[str]


class ExtractResult(ExtractedStore):
    """What ``extract`` returns."""

    images_per_second: float | None  # None if nothing was left to do


def extract(config: ExtractConfig, plan: Plan | None = None) -> ExtractResult:
    """Do the whole job; see :func:`ghost_ray.jobs.extract.run`. A given plan may cover a part of the data."""
    planned = plan

    def whole_plan() -> Plan:
        nonlocal planned
        planned = planned or make_plan(config)
        return planned

    output = OutputFolder(
        config.out,
        kind="store",
        overwrite=config.overwrite,
        resume=True,
        differs=lambda made: made_differently(made, config, whole_plan()),
    )
    if output.finished:
        return {**_summary(Store.open(config.out, "out")), "images_per_second": None}
    plan = whole_plan()
    for note in plan.notes:
        say(f"extract: {note}")
    rate = None
    # The cluster is joined once, and its paths are checked before this run claims its output folder.
    with named_cluster(config), output:
        if not claim(output, config, plan):
            here = runs_here(config, plan)
            if not here:
                end_kept_template()
            with workers(config) if here else ray_session(config):
                rate = _compute(config, plan, output.staging, here=here)
        output.publish()
    return {**_summary(Store.open(config.out, "out")), "images_per_second": rate}


def _summary(store: Store) -> ExtractedStore:
    return {
        "store": store.uri,
        "rows": store.rows,
        "failures": store.manifest.failures,
        "classes": store.classes,
        "dimensions": store.dimensions,
        "accuracy": store.manifest.accuracy,
        "seconds": store.manifest.seconds,
        "notes": store.manifest.notes,
    }


def _compute(config: ExtractConfig, plan: Plan, staging: str, *, here: bool) -> float | None:
    """Everything between the plan and a complete store in the staging folder; the rate in images per second."""
    start, images, failure = time.monotonic(), 0, None
    todo, done = left_to_do(plan.portions, staging, again=True)
    if done:
        say(f"extract: {done:,} of {'' if plan.exact else 'about '}{plan.images:,} images are done already")
    with Quarantine() as quarantine:
        in_vain, written = 0, _written(plan, staging)
        while in_vain < STREAM_ROUNDS:
            if todo:
                left = max(1, plan.images - done)
                ended = _stream(config, plan, todo, left, staging, quarantine.gpus, here=here)
                quarantine.add(ended.broken)
                images += ended.images
                failure = ended.failure or failure
            result = survey(plan.portions, staging)
            todo, done = result.left, result.images - result.missing
            if not todo:
                break
            before, written = written, _written(plan, staging)
            in_vain = 0 if written > before else in_vain + 1
        else:
            lost_images = f"{result.missing:,} images were lost in each of {STREAM_ROUNDS} rounds"
            raise failure or JobFailed(f"{lost_images} — run the same command again")
    elapsed = time.monotonic() - start
    _check(config, plan, staging, result)
    commit(config, plan, staging, result)
    return round(images / elapsed, 2) if images else None


def _written(plan: Plan, staging: str) -> int:
    """Images in the blocks so far: a round that adds to them made progress."""
    return left_to_do(plan.portions, staging, again=False)[1]


def _check(config: ExtractConfig, plan: Plan, staging: str, result: Outcome) -> None:
    """Check that the result may become a store."""
    if not result.images:
        raise InputError("data", plan.source.uri, "holds no image", format_setting())
    if result.without_row > config.max_failures * result.images:
        write_failures(staging, result.failures)
        examples = [tuple(row.values()) for row in result.failures.slice(0, 3).to_pylist()]
        raise _too_many(config, result.images, result.without_row, examples, join(staging, FAILURES))
    source = plan.source
    if source.keys_may_repeat and not source.seen.complete:
        refuse_repeated_keys(source, plan.portions)


class _Round(NamedTuple):
    """How a pass over the images ended."""

    broken: list[Device]  # devices that it lost
    images: int  # that it computed
    failure: JobFailed | None  # a loss in Ray that ended the pass


def _stream(
    config: ExtractConfig, plan: Plan, todo: list[Todo], images: int, staging: str, unusable: int, *, here: bool
) -> _Round:
    """One pass over some portions with about so many ``images`` left, in threads ``here`` or on Ray.

    The ``unusable`` GPUs are not used.
    """
    limit = config.max_failures * plan.images
    total = images if plan.exact else None
    if here:
        tally = tallying_here(limit, total, len(todo))

        def run(to: Reporter) -> None:
            stream_here(config, plan, todo, images, staging, to)

    else:
        from ghost_ray.jobs.extract.pipeline import stream  # Ray Data takes a second to import
        from ghost_ray.jobs.extract.ray_tally import RayWatch, tallying

        rows = rows_per_block(images, config.batch_size, plan.preprocessing.bytes, cluster_cpus())
        may_grow = bool(config.address or os.environ.get("RAY_ADDRESS"))
        pool = plan_pool(config, plan.demand, images, rows, may_grow=may_grow).without(unusable)
        require_places(config)  # including nodes that have joined meanwhile
        watch = RayWatch(partial(_written, plan, staging))
        tally = tallying(limit, total, len(todo), watch, spare=pool.max_actors // 2, store=redact(config.out))

        def run(to: Reporter) -> None:
            with can_be_ended() as watch.end:
                stream(plan, todo, rows, pool, config.batch_size, staging, to)

    failure = None
    try:
        with tally as (reporter, counts):
            try:
                run(reporter)
            finally:
                now = counts()
    except Exception as error:  # Ray Data wraps what its workers raise in types of several modules
        if hopeless(now.failures, limit):
            raise _too_many(config, plan.images, now.failures, now.examples, None) from None
        if (ours := _ours(error)) is not None:
            raise ours from None
        cause = _last_line(error)
        failure = JobFailed(f"{cause} — finished work is kept; run the same command again")
        if here or not lost_something(error):
            raise failure from None
        say(f"extract: {cause} — finished work is kept; another round processes the rest")
    return _Round(now.broken, now.images, failure)


def _ours(error: BaseException) -> GhostRayError | None:
    """What a worker raised for the user, if that is what ended the stream."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, GhostRayError):
            seen.args = (_without_advice(str(seen)), *seen.args[1:])
            return seen
        inner = getattr(seen, "cause", None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__
    return None


_ADVICE = re.compile(r"\s*Failed to [^\n]* after \d+/\d+ attempts \(total backoff.*", re.DOTALL)


def _without_advice(text: str) -> str:
    """What an error says itself: Ray Data appends how its own retries are set."""
    return _ADVICE.sub("", text)


def _last_line(error: BaseException) -> str:
    lines = [line for line in _without_advice(str(error)).strip().splitlines() if line.strip()]
    return one_line(lines[-1] if lines else type(error).__name__)


def _too_many(
    config: ExtractConfig, images: int, failures: int, examples: list[tuple[str, str, str]], table: str | None
) -> GateFailed:
    shown = "; ".join(f"{key} ({stage}: {error})" for key, stage, error in examples)
    where = f"all of them in {redact(table)}" if table else "stopped early"
    return GateFailed(
        f"{failures:,} of {images:,} images failed, more than `max_failures={config.max_failures:g}` allows: "
        f"{shown}; {where}; with a larger `max_failures` the same command resumes"
    )
