"""The audit from the store to its folder: plan, test by class, correct once, write, publish."""

from __future__ import annotations

from typing import Any, Literal

from ghost_ray.cluster import map_ordered, workers
from ghost_ray.cluster.sort import clustered
from ghost_ray.config import AuditConfig
from ghost_ray.errors import GateFailed, InputError, redact
from ghost_ray.files import OutputFolder, join, read_json, remove_tree, write_json
from ghost_ray.files.manifest import Data, Manifest, difference, provenance, read_manifest, write_manifest
from ghost_ray.jobs.audit.audit_summary import AuditSummary, Distribution, Summary
from ghost_ray.jobs.audit.class_tests import Sampling, test_range
from ghost_ray.jobs.audit.example_cells import TYPICAL_QUANTILES, Examples
from ghost_ray.jobs.audit.family import correction
from ghost_ray.jobs.audit.normality_table import NormalityTable
from ghost_ray.jobs.audit.partial import Partial
from ghost_ray.jobs.audit.verdict import percent
from ghost_ray.progress import progress
from ghost_ray.store import RowGroups, Store

SUMMARY = "summary.json"
_WORK = "work"


class AuditManifest(Manifest):
    """Manifest of an audit; ``rows`` counts the samples tested."""

    kind: Literal["audit"] = "audit"
    class_names: list[str] | None = None
    tests: int = 0
    rejected_fraction: float = 0.0


class AuditResult(AuditSummary):
    """What ``audit`` returns."""

    audit: str
    store: str


def run(config: AuditConfig) -> AuditResult:
    """Audit a store; returns the summary, and raises GateFailed if a larger share than ``fail_above`` is rejected."""
    return audit_store(config, Store.open(config.store, verify=config.verify))


def audit_store(config: AuditConfig, store: Store) -> AuditResult:
    """Audit a store that is already open; otherwise as ``run``."""
    if not any((file.groups.last_label >= 0).any() for file in store.files):
        raise InputError("store", redact(store.uri), "has no labelled row", "audit a store of labelled training images")
    made_from = store.fingerprint()
    output = OutputFolder(
        config.out,
        kind="audit",
        overwrite=config.overwrite,
        resume=True,
        differs=lambda made: difference(made, config, [made_from], {"fail_above"}),
    )
    if output.finished:
        read_manifest(config.out, AuditManifest, "out", "ghost-ray audit")  # refuses a damaged one
        return _answer(config, read_json(join(config.out, SUMMARY)))
    with output:
        try:
            with workers(config):
                summary = _audit(config, store, output.staging)
        except InputError:
            output.resume = False  # the store has to change, and with it everything tested so far
            raise
        manifest = AuditManifest(
            **provenance(config),
            network=store.manifest.network,
            data=[Data(uri=redact(store.uri), kind="store", fingerprint=made_from)],
            rows=summary["rows_tested"],
            class_names=store.manifest.class_names,
            tests=summary["tests"],
            rejected_fraction=summary["rejected_fraction"],
        )
        remove_tree(join(output.staging, _WORK))
        write_manifest(output.staging, manifest)
        output.publish()
    return _answer(config, summary)


def _answer(config: AuditConfig, summary: AuditSummary) -> AuditResult:
    """The result, or what ``fail_above`` says against it."""
    result: AuditResult = {"audit": config.out, "store": config.store, **summary}
    rate, limit = summary["rejected_fraction"], config.fail_above
    if limit is not None and rate > limit:
        problem = f"{percent(rate)} of the tests reject normality, more than `fail_above={limit:g}`"
        raise GateFailed(f"{problem}; the audit is in {config.out}", result)
    return result


def _audit(config: AuditConfig, store: Store, staging: str) -> AuditSummary:
    work = join(staging, _WORK)
    plan = {"store": store.fingerprint(), "max_n": config.max_n, "seed": config.seed}
    partial = Partial(work, plan)
    store = clustered(store, join(work, "store"))
    sampling = Sampling(config.max_n, config.seed)
    ranges = [each for each in store.class_ranges() if each[-1].last_label >= 0]
    _test(ranges, store, sampling, partial)
    return _conclude(config, store, sampling, partial, len(ranges), staging)


def _test(ranges: list[list[RowGroups]], store: Store, sampling: Sampling, partial: Partial) -> None:
    """Test the ranges that earlier runs have not tested."""
    finished = partial.finished()
    left = [index for index in range(len(ranges)) if index not in finished]
    rows = [sum(groups.rows for groups in each) for each in ranges]
    tests = 0
    with progress("audit", sum(rows[index] for index in left), "rows") as shown:
        results = map_ordered(test_range, (ranges[index] for index in left), store, sampling)
        for index, (_, found) in zip(left, results, strict=True):
            partial.save(index, found)
            tests += found.degenerate.size - int(found.degenerate.sum())
            shown.note(f"{tests:,} tests")
            shown.advance(rows[index])


def _conclude(
    config: AuditConfig, store: Store, sampling: Sampling, partial: Partial, ranges: int, staging: str
) -> AuditSummary:
    """Correct over the whole family and write everything but the manifest."""

    def blocks() -> Any:
        return partial.blocks(ranges, store.classes, store.dimensions)

    W = Distribution()
    tests = 0
    for block in blocks():
        tested = ~block.degenerate
        tests += int(tested.sum())
        W.add(block.W[tested])
    if tests == 0:
        raise InputError(
            "store",
            redact(store.uri),
            "no class has three correctly classified rows that differ: nothing can be tested",
            "audit a store of labelled training images",
        )
    correct = correction(blocks(), tests, config.alpha, config.family)
    summary = Summary(store)
    examples = Examples(store.dimensions, [W.quantile(share) for share in TYPICAL_QUANTILES])
    with NormalityTable.create(staging) as table:
        for block in blocks():
            adjusted, rejected = correct(block)
            for part in (table.write, summary.add, examples.look_at):
                part(block, adjusted, rejected)
    examples.write(staging, store, sampling)
    result = summary.result(config.alpha, config.family, W)
    write_json(join(staging, SUMMARY), result)
    return result
