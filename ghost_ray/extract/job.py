"""The job: plan → stream, as often as it takes → check → commit."""

from __future__ import annotations

import os
import time
from typing import Any

from ghost_ray.config import ExtractConfig
from ghost_ray.errors import GateFailed, GhostRayError, JobFailed, one_line
from ghost_ray.extract.commit import commit, outcome
from ghost_ray.extract.pipeline import clean_up, rows_per_block, stream
from ghost_ray.extract.plan import Plan, make_plan
from ghost_ray.extract.pool import plan_pool
from ghost_ray.extract.resume import claim, remaining
from ghost_ray.extract.tally import hopeless, tallying
from ghost_ray.files import OutputFolder, join, redact
from ghost_ray.progress import say
from ghost_ray.runtime import cluster_cpus, ray_session
from ghost_ray.store import FAILURES, Store, write_failures

_ROUNDS = 5  # what a dying node took with it after it was written is computed again


def extract(config: ExtractConfig, plan: Plan | None = None) -> dict[str, Any]:
    """Do the whole job; see :func:`ghost_ray.extract.run`. A plan given may be a part of what ``config`` means."""
    output = OutputFolder(config.out, overwrite=config.overwrite, resume=True)
    plan = plan or make_plan(config)
    for note in plan.notes:
        say(f"extract: {note}")
    rate = None
    with output:
        if not claim(output, config, plan):
            with ray_session(config):
                rate = _compute(config, plan, output.staging)
        output.publish()
    return {**_summary(Store.open(config.out, "--out")), "images_per_second": rate}


def _summary(store: Store) -> dict[str, Any]:
    label, prediction = store.read_labels()
    known = label >= 0
    return {
        "store": store.uri,
        "rows": store.rows,
        "failures": store.manifest.failures,
        "classes": store.classes,
        "dimensions": store.dimensions,
        "accuracy": float((label == prediction)[known].mean()) if known.any() else None,
        "seconds": store.manifest.seconds,
    }


def _compute(config: ExtractConfig, plan: Plan, staging: str) -> float | None:
    """Everything between the plan and a complete store in the staging folder; the rate in images a second."""
    clean_up(staging)
    start, images = time.monotonic(), 0
    for attempt in range(_ROUNDS):
        items = remaining(plan.items, staging, again=attempt == 0)
        if not items.num_rows:
            break
        if items.num_rows < plan.items.num_rows:
            say(f"extract: {plan.items.num_rows - items.num_rows:,} of {plan.items.num_rows:,} images are done already")
        _stream(config, plan, items, staging)
        images += items.num_rows
    else:
        raise JobFailed(f"{items.num_rows:,} images were lost {_ROUNDS} times over — run the same command again")
    elapsed = time.monotonic() - start
    result = outcome(plan, staging)
    if result.failures.num_rows > config.max_failures * plan.images:
        write_failures(staging, result.failures)
        examples = [tuple(row.values()) for row in result.failures.slice(0, 3).to_pylist()]
        raise _too_many(config, plan, result.failures.num_rows, examples, join(staging, FAILURES))
    commit(config, plan, staging, result)
    return round(images / elapsed, 2) if images else None


def _stream(config: ExtractConfig, plan: Plan, items: Any, staging: str) -> None:
    """One pass over ``items``."""
    rows = rows_per_block(items.num_rows, config.batch_size, plan.preprocessing.bytes, cluster_cpus())
    may_grow = bool(config.address or os.environ.get("RAY_ADDRESS"))
    pool = plan_pool(config, plan.demand, items.num_rows, rows, may_grow=may_grow)
    limit = config.max_failures * plan.images
    with tallying(limit, items.num_rows) as (reporter, counts):
        try:
            stream(plan, items, rows, pool, config.batch_size, staging, reporter)
        except Exception as error:  # Ray Data wraps what its workers raise in types of several modules
            now = counts()
            if hopeless(now.failures, limit):
                raise _too_many(config, plan, now.failures, now.examples, None) from None
            raise _reason(error) from None


def _reason(error: BaseException) -> BaseException:
    """What a worker raised, where it is ours, or that the job failed and why."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, GhostRayError):
            return seen
        inner = getattr(seen, "cause", None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__
    last = [line for line in str(error).strip().splitlines() if line.strip()]
    return JobFailed(
        f"{one_line(last[-1] if last else type(error).__name__)} — what is done is kept; run the same command again"
    )


def _too_many(
    config: ExtractConfig, plan: Plan, failures: int, examples: list[tuple[str, str, str]], table: str | None
) -> GateFailed:
    shown = "; ".join(f"{key} ({stage}: {error})" for key, stage, error in examples)
    where = f"all of them in {redact(table)}" if table else "stopped early"
    return GateFailed(
        f"{failures:,} of {plan.images:,} images failed, more than --max-failures {config.max_failures:g} allows: "
        f"{shown}; {where}; with a larger --max-failures the same command goes on"
    )
