"""The job: plan → stream, as often as it takes → check → commit.

The stages are one list (`Stages`). They run as one Ray Data stream, or in threads of this process for a few images.
Both end in one row of statistics per block, which the driver adds up: progress, failures and their limit, metrics.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import pickle
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ghost_ray.cluster import cluster_cpus, named_cluster, ray_session, require_places, workers
from ghost_ray.cluster.nodes import reported_demand
from ghost_ray.cluster.ray_interfaces import counter, other_working_nodes, streaming
from ghost_ray.cluster.session import cluster_address, is_dead_worker, lost_something, ray_is_joined
from ghost_ray.config import ExtractConfig
from ghost_ray.config.limits import ACTOR_RESTARTS, DECODE_RETRIES, STREAM_ROUNDS, TASK_RETRIES
from ghost_ray.errors import GateFailed, GhostRayError, InputError, JobFailed, one_line, redact
from ghost_ray.files import OutputFolder, join
from ghost_ray.jobs.extract.blocks import (
    Block,
    BlockStats,
    BlockWriter,
    Remaining,
    block_schema,
    over_rows,
    remaining_work,
)
from ghost_ray.jobs.extract.census import refuse_repeated_keys
from ghost_ray.jobs.extract.commit import Outcome, check_blocks, commit
from ghost_ray.jobs.extract.decode import Decode
from ghost_ray.jobs.extract.embed import CALLS, Embed, EmbedSpec
from ghost_ray.jobs.extract.listing import Lister, ListTask, rows_per_block
from ghost_ray.jobs.extract.plan import Plan, make_plan
from ghost_ray.jobs.extract.pool import Pool, plan_pool
from ghost_ray.jobs.extract.resume import claim, made_differently
from ghost_ray.progress import progress, say
from ghost_ray.sources import format_setting
from ghost_ray.store import FAILURES, Store, write_failures

_FEW = 2000  # images; a Ray of this machine takes ten seconds to start and to stop, and pays off only beyond
_HOPELESS = 100  # with fewer failures, the job never stops early


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
    # A cluster is joined once, and its paths are checked before this run claims its output folder.
    with named_cluster(config):
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
        with output:
            if (left := claim(output, config, plan)) != "computed":
                few = not _needs_ray(config) and plan.source.preview.complete and plan.images <= _FEW
                # Without Ray, an earlier run may have died of an image that it decoded.
                isolated = few and left == "interrupted"
                with workers(config) if few else ray_session(config):
                    rate = _compute(config, plan, output.staging, isolated, on_ray=not few)
            output.publish()
    return {**_summary(Store.open(config.out, "out")), "images_per_second": rate}


def _needs_ray(config: ExtractConfig) -> bool:
    """Whether a cluster is named or joined, actors are asked for, or a precision that may end the process."""
    asked = config.actors or config.gpus_per_actor or config.precision != "fp32"
    return bool(asked or cluster_address(config) or ray_is_joined())


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


def _compute(config: ExtractConfig, plan: Plan, staging: str, isolated: bool, *, on_ray: bool) -> float | None:
    """Everything between the plan and a complete store in the staging folder; the rate in images per second."""
    start, images, failure = time.monotonic(), 0, None
    remaining, done = remaining_work(plan.groups, staging, retry_reads=True)
    if done:
        say(f"extract: {done:,} of {'' if plan.exact else 'about '}{plan.images:,} images are done already")
    in_vain, written = 0, _written(plan, staging)
    while in_vain < STREAM_ROUNDS:
        if remaining:
            ended = _round(config, plan, remaining, max(1, plan.images - done), staging, isolated, on_ray=on_ray)
            images += ended.images
            failure = ended.failure or failure
            isolated = isolated or ended.worker_died
        outcome = check_blocks(plan.groups, staging)
        remaining, done = outcome.remaining, outcome.images - outcome.missing
        if not remaining:
            break
        before, written = written, _written(plan, staging)
        in_vain = 0 if written > before else in_vain + 1
    else:
        lost = f"{outcome.missing:,} images were lost in each of {STREAM_ROUNDS} rounds"
        raise failure or JobFailed(f"{lost} — run the same command again")
    elapsed = time.monotonic() - start
    _validate(config, plan, staging, outcome)
    commit(config, plan, staging, outcome)
    return round(images / elapsed, 2) if images else None


def _written(plan: Plan, staging: str) -> int:
    """Images in the blocks so far: a round that adds to them made progress."""
    return remaining_work(plan.groups, staging, retry_reads=False)[1]


def _validate(config: ExtractConfig, plan: Plan, staging: str, outcome: Outcome) -> None:
    """Check that the result may become a store."""
    if not outcome.images:
        raise InputError("data", plan.source.uri, "holds no image", format_setting())
    if outcome.without_row > config.max_failures * outcome.images:
        write_failures(staging, outcome.failures)
        examples = [tuple(row.values()) for row in outcome.failures.slice(0, 3).to_pylist()]
        raise _too_many(config, outcome.images, outcome.without_row, examples, join(staging, FAILURES))
    source = plan.source
    if source.keys_may_repeat and not source.preview.complete:
        refuse_repeated_keys(source, plan.groups)


# ---- one round


Stream = Generator[BlockStats, None, None]


@dataclass
class _Round:
    """A pass over the images that are left, as far as it came."""

    images: int = 0
    failures: int = 0
    examples: list[tuple[str, str, str]] = field(default_factory=list)
    listed: int = 0  # groups of shards
    failure: JobFailed | None = None  # a loss in Ray that ended it
    worker_died: bool = False  # one that decodes

    def add(self, stats: BlockStats) -> None:
        self.images += stats.images
        self.failures += stats.failures
        self.examples += [(key, stage, error) for key, stage, error, _ in stats.examples][: 3 - len(self.examples)]
        self.listed += stats.ends_listing


def _round(
    config: ExtractConfig,
    plan: Plan,
    remaining: list[Remaining],
    images: int,
    staging: str,
    isolated: bool,
    *,
    on_ray: bool,
) -> _Round:
    """One pass over some groups of shards with about so many ``images`` left."""
    ended = _Round()
    limit = max(_HOPELESS, 2 * config.max_failures * plan.images)
    streamed = _streamed_on_ray if on_ray else _streamed_in_threads
    try:
        with (
            progress("extract", images if plan.exact else None, "images") as shown,
            contextlib.closing(streamed(config, plan, remaining, images, staging, isolated)) as stream,
        ):
            for stats in stream:
                ended.add(stats)
                notes = [] if plan.exact else [f"{ended.listed:,} of {len(remaining):,} groups of shards listed"]
                notes += [f"{ended.failures:,} failed"] if ended.failures else []
                if notes:
                    shown.note(", ".join(notes))
                shown.advance(stats.images)
                if ended.failures > limit:  # finishing is pointless, even to list all that failed
                    raise _too_many(config, plan.images, ended.failures, ended.examples, None)
    except GhostRayError:
        raise
    except Exception as error:  # Ray Data wraps what its workers raise in types of several modules
        if (own_error := _own_error(error)) is not None:
            raise own_error from None
        cause = _last_line(error)
        ended.failure = JobFailed(f"{cause} — finished work is kept; run the same command again")
        if not on_ray or not lost_something(error):
            raise ended.failure from None
        ended.worker_died = is_dead_worker(error)
        say(f"extract: {cause} — finished work is kept; another round processes the rest")
    return ended


def _streamed_on_ray(
    config: ExtractConfig, plan: Plan, remaining: list[Remaining], images: int, staging: str, isolated: bool
) -> Stream:
    """The stages on the connected cluster, once it has room for them."""
    gc.collect()  # a stream that failed may leave cycles that hold its actors, and with them their GPUs
    rows = rows_per_block(images, config.batch_size, plan.preprocessing.bytes, cluster_cpus())
    pool = plan_pool(config, plan, images, rows)
    require_places(config)  # also on nodes that have joined meanwhile
    stages = make_stages(config, plan, staging, rows, pool, isolated=isolated)
    metrics = Metrics(redact(config.out))
    with _watching() as watch:
        for stats in stream_on_ray(stages, remaining, pool, rows * plan.preprocessing.bytes):
            metrics.add(stats)
            watch.moved()
            yield stats


def _streamed_in_threads(
    config: ExtractConfig, plan: Plan, remaining: list[Remaining], images: int, staging: str, isolated: bool
) -> Stream:
    """The stages in this process."""
    import torch

    cpus = config.num_cpus or os.cpu_count() or 1
    gpus = 1.0 if config.gpus_per_actor is None and torch.cuda.is_available() else 0.0
    rows = rows_per_block(images, config.batch_size, plan.preprocessing.bytes, cpus)
    stages = make_stages(config, plan, staging, rows, Pool(1, 1, 0, gpus, cpus, 1), isolated=isolated)
    yield from stream_in_threads(stages, remaining, cpus)


def _own_error(error: BaseException) -> GhostRayError | None:
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


# ---- the stages, and what runs them


@dataclass(frozen=True)
class Stages:
    """What happens to a block: listed by one task, decoded by another, embedded and written by an actor."""

    list_blocks: Lister
    decode: Decode
    embed: EmbedSpec
    write: BlockWriter


def make_stages(
    config: ExtractConfig, plan: Plan, staging: str, rows: int, pool: Pool, *, isolated: bool = False
) -> Stages:
    """The stages of a plan, in blocks of ``rows`` images; ``isolated`` decodes in child processes."""
    dimensions = plan.network.dimensions
    embed = EmbedSpec(
        plan.spec,
        plan.preprocessing.second_half(),
        dimensions,
        config.batch_size,
        pool.threads,
        pool.actor_gpus,
    )
    return Stages(
        plan.lister(staging, rows),
        Decode(plan.source.reader, plan.preprocessing, isolated),
        embed,
        BlockWriter(block_schema(dimensions), staging, secrets.token_hex(4)),
    )


_BLOCKS_AN_ACTOR = 2 * CALLS  # decoded: those it has, and as many again that wait for it
_BLOCKS_A_CPU = 2  # one that is decoded and one that has just been
_LIST_CPUS = 0.001  # a listing task mostly waits for the decoding tasks; it must not take a core from them
_LISTERS = 2  # at least; each is one more process to start before the first block


def stream_on_ray(stages: Stages, remaining: list[Remaining], pool: Pool, block_bytes: int) -> Stream:
    """The stages as one Ray Data stream on the connected cluster.

    A block that is written is finished: a run that resumes reads from the files which images they hold. Ray Data's own
    checkpoints would add nothing, and cost eight requests to an object store instead of one.
    """
    import ray
    from ray.data import ActorPoolStrategy

    cpus = cluster_cpus()
    ahead = int(_BLOCKS_AN_ACTOR * pool.min_actors + _BLOCKS_A_CPU * cpus / pool.decode_cpus) * block_bytes
    listing = ListTask(ray.put(stages.list_blocks))  # once, and not with every task
    with streaming(max(512 << 20, ahead)):
        work = [{"work": pickle.dumps(each)} for each in remaining]
        dataset: Any = ray.data.from_items(work, override_num_blocks=len(work))
        dataset = dataset.map_batches(
            listing,
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=_LIST_CPUS,
            concurrency=max(_LISTERS, cpus),
            max_retries=TASK_RETRIES,
        )
        dataset = dataset.map_batches(
            over_rows(Decode)(stages.decode.reader, stages.decode.preprocessing, stages.decode.isolated),
            batch_size=1,  # a row, which is a block
            batch_format="pyarrow",
            num_cpus=pool.decode_cpus,
            max_retries=DECODE_RETRIES,
        )
        dataset = dataset.map_batches(
            over_rows(Embed),
            fn_constructor_args=(stages.embed, stages.write, True),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(
                min_size=pool.min_actors,
                max_size=pool.max_actors,
                max_tasks_in_flight_per_actor=CALLS,
                enable_true_multi_threading=True,
            ),
            max_concurrency=CALLS,
            max_restarts=ACTOR_RESTARTS,
            max_task_retries=ACTOR_RESTARTS,
            num_cpus=pool.actor_cpus,
            num_gpus=pool.actor_gpus or None,
            memory=pool.actor_memory or None,
        )
        for rows in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            for stats in rows["stats"].to_pylist():
                yield BlockStats.from_text(stats)


def stream_in_threads(stages: Stages, remaining: list[Remaining], cpus: int) -> Stream:
    """The stages in threads of this process: faster than starting Ray for a few images."""
    embed = Embed(stages.embed, stages.write)
    for block in _decoded(stages, remaining, cpus):
        yield embed(block)


def _decoded(stages: Stages, remaining: list[Remaining], cpus: int) -> Iterator[Block]:
    """The blocks in order; a few are decoded while others are embedded."""
    pending: deque[Future[Block]] = deque()
    with ThreadPoolExecutor(cpus) as pool:
        for work in remaining:
            for block in stages.list_blocks.blocks(work):
                pending.append(pool.submit(stages.decode, block))
                if len(pending) > 2 * cpus:
                    yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


# ---- what the driver tells while a stream runs


class Metrics:
    """The counts as metrics of Ray."""

    def __init__(self, store: str) -> None:
        import ray

        # Several extractions may run on one cluster.
        which = {"job": ray.get_runtime_context().get_job_id(), "store": store}
        self._images = counter("ghost_ray_extract_images", "Images embedded or failed", *which)
        self._failures = counter("ghost_ray_extract_failures", "Images that failed", "stage", *which)
        self._seconds = counter("ghost_ray_extract_seconds", "Seconds spent", "stage", *which)
        for each in (self._images, self._failures, self._seconds):
            each.set_default_tags(which)

    def add(self, stats: BlockStats) -> None:
        if stats.images:
            self._images.inc(stats.images)
        for stage, failed in stats.by_stage.items():
            self._failures.inc(failed, tags={"stage": stage})
        for stage, seconds in stats.seconds.items():
            if seconds > 0:
                self._seconds.inc(seconds, tags={"stage": stage})


_SILENCE_SECONDS = 60.0
_LOOK_SECONDS = 2.0


class _Watch:
    """Names nodes that are lost, and says once per minute what a stream that does not move waits for."""

    def __init__(self) -> None:
        self._nodes, self._said = other_working_nodes(), time.monotonic()
        self._moved = self._said

    def moved(self) -> None:
        self._moved = self._said = time.monotonic()

    def look(self) -> None:
        now = other_working_nodes()
        for node in set(self._nodes) - set(now):
            say(f"extract: node {node.name} is lost; what it held is computed elsewhere")
        self._nodes = now
        if time.monotonic() - self._said >= _SILENCE_SECONDS:
            self._said = time.monotonic()
            waited = self._said - self._moved
            say(f"extract: no block was finished for {waited:.0f} s; Ray reports {reported_demand()}")


@contextlib.contextmanager
def _watching() -> Iterator[_Watch]:
    watch, stop = _Watch(), threading.Event()
    context = contextvars.copy_context()  # in which the job may be quiet; a thread does not inherit it

    def run() -> None:
        while not stop.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # the cluster may be gone: the stream itself says so
                watch.look()

    thread = threading.Thread(target=context.run, args=(run,), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join(timeout=15)
