"""``evaluate``: GHOST against its rivals on known and unknown test sets.

Plan → fit every method on the training store → score every set once → measure → write::

    EVAL/metrics.json           closed-set accuracy, one result a (method, unknown set), one a (method, group)
    EVAL/significance.json      every method on every draw, and paired tests of each rival against GHOST
    EVAL/curves.parquet         method, unknown, curve, x, y; curve = oscr, roc, oscr_top, oscr_bottom or v, x = FPR
    EVAL/per_class.parquet      method, unknown, class, name, n, accuracy, ccr (at FPR 10 %), f_at_c95
    EVAL/scores/*.parquet       <method>__<set>: key, pred, label, score
    EVAL/zscores.parquet        set, left, right, count: histograms of GHOST's s
    EVAL/example.json           one class, a known of it and an unknown taken for it, dimension by dimension
    EVAL/pictures.parquet       the samples that the report shows, with small copies of their images
    EVAL/table.md, table.tex    the paper's tables
    EVAL/openood/*.csv          <method>: the columns of OpenOOD, in percent
    EVAL/manifest.json          written last
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.checks import of_negative_top_logits
from ghost_ray.cluster import ray_session, workers
from ghost_ray.config import EvaluateConfig
from ghost_ray.errors import redact
from ghost_ray.files import OutputFolder, join, read_json, remove_tree, resolve, write_bytes, write_json
from ghost_ray.files.digests import sizes_in
from ghost_ray.files.manifest import Data, Manifest, difference, provenance, read_manifest, write_manifest
from ghost_ray.jobs.evaluate.costs import Clock, Cost, costs
from ghost_ray.jobs.evaluate.earlier import Earlier
from ghost_ray.jobs.evaluate.evaluate_notes import noticed
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN, Plan, make_plan, named_methods
from ghost_ray.jobs.evaluate.findings import EvaluateResult, Evaluation
from ghost_ray.jobs.evaluate.fitted_methods import Fitted
from ghost_ray.jobs.evaluate.fitting import fit_all
from ghost_ray.jobs.evaluate.illustrating import PICTURES, example, pictures, z_histograms
from ghost_ray.jobs.evaluate.measuring import average_groups, compare_with_ghost, measure_all
from ghost_ray.jobs.evaluate.openood_tables import openood_csv
from ghost_ray.jobs.evaluate.result_tables import to_latex, to_markdown
from ghost_ray.jobs.evaluate.scoring import SetScores, file_name, score_file, score_set

__all__ = ["EvaluationManifest", "named_methods", "run"]


class EvaluationManifest(Manifest):
    """Manifest of an evaluation; ``rows`` counts the rows scored, ``sets`` each set's."""

    kind: Literal["evaluation"] = "evaluation"
    methods: list[str]
    sets: dict[str, int]
    costs: dict[str, Cost] = {}  # 0.1 kept none


def run(config: EvaluateConfig) -> EvaluateResult:
    """Evaluate methods as configured; returns what metrics.json holds and where it was written."""
    return run_plan(config, make_plan(config))


def run_plan(config: EvaluateConfig, plan: Plan, earlier: Earlier | None = None) -> EvaluateResult:
    """Evaluate as planned; for the rest as ``run``. What ``earlier`` has is not computed again."""
    stores = [reader.store for reader in (plan.fit, *plan.sets.values())]
    prints = [store.fingerprint() for store in stores]
    output = OutputFolder(
        config.out,
        kind="evaluation",
        overwrite=config.overwrite,
        differs=lambda made: difference(made, config, prints),
    )
    if output.finished:
        read_manifest(config.out, EvaluationManifest, "out", "ghost-ray evaluate")  # refuses a damaged one
        done: Evaluation = read_json(join(config.out, "metrics.json"))
        return {"evaluation": config.out, **done}
    with output:
        with workers(config) if plan.light else ray_session(config):
            summary, spent = _evaluate(config, plan, output.staging, earlier)
        sets = {name: reader.store.rows for name, reader in plan.sets.items()}
        manifest = EvaluationManifest(
            **provenance(config),
            network=plan.fit.store.manifest.network,
            data=[
                Data(uri=redact(store.uri), kind="store", fingerprint=made_from)
                for store, made_from in zip(stores, prints, strict=True)
            ],
            rows=sum(sets.values()),
            methods=list(plan.scorers),
            sets=sets,
            costs=spent,
        )
        write_manifest(output.staging, manifest)
        output.publish()
    return {"evaluation": config.out, **summary}


def _evaluate(
    config: EvaluateConfig, plan: Plan, folder: str, earlier: Earlier | None
) -> tuple[Evaluation, dict[str, Cost]]:
    scratch, scores = join(folder, "scratch"), join(folder, "scores")
    fitted = fit_all(plan.scorers, plan.fit, scratch, earlier.restored if earlier else None)
    if earlier:
        earlier.keep_fits(fitted)
    methods = list(plan.scorers)
    done = {KNOWN: earlier.known_scores(scores)} if earlier else {}
    sets = {
        name: score_set(fitted, reader, name, methods, scores, done.get(name)) for name, reader in plan.sets.items()
    }
    if earlier:
        earlier.keep_known_scores(sets[KNOWN], done[KNOWN], scores)
    spent = _costs(fitted, sets, methods, folder)
    remove_tree(scratch)
    store = plan.sets[KNOWN].store
    pairs = [(method, unknown) for unknown in plan.unknowns for method in methods]
    measured = measure_all(sets, plan.scorers, pairs, [store.class_name(k) for k in range(store.classes)])
    _write_table(folder, "curves.parquet", measured.curves)
    _write_table(folder, "per_class.parquet", measured.per_class)
    compared = compare_with_ghost(sets, plan.scorers, plan.unknowns, config.draws, config.draw_size, config.seed)
    write_json(join(folder, "significance.json"), compared)
    if fitted.gaussians is not None:
        _write_table(folder, "zscores.parquet", z_histograms(sets))
        shown = example(plan.sets, sets, fitted.gaussians)
        if shown is not None:
            write_json(join(folder, "example.json"), shown)
    gallery = pictures(plan.sets, sets, "ghost" if "ghost" in methods else methods[0], scores, config.images)
    if gallery is not None:
        _write_table(folder, PICTURES, gallery)
    said_by_scorers = [note for scorer in plan.scorers.values() for note in scorer.notes()]
    said_on_scoring = [note for scored in sets.values() for said in scored.notes.values() for note in said]
    if any(method.startswith("ghost") for method in methods):
        said_on_scoring += of_negative_top_logits(
            {f"rows of {name}": (scored.negative_top_logits, len(scored.label)) for name, scored in sets.items()}
        )
    summary: Evaluation = {
        "network": plan.fit.store.manifest.network.name,
        "closed_set_accuracy": float(np.mean(sets[KNOWN].label == sets[KNOWN].pred)),
        "knowns": len(sets[KNOWN].label),
        "classes": store.classes,
        "dimensions": store.dimensions,
        "methods": methods,
        "unknowns": {name: len(sets[name].label) for name in plan.unknowns},
        "negative_top_logits": {name: scored.negative_top_logits for name, scored in sets.items()},
        "results": measured.results,
        "groups": average_groups(measured.results, plan.groups),
        "notes": list(
            dict.fromkeys(
                [
                    *plan.notes,
                    *noticed(plan, fitted.gaussians),
                    *said_by_scorers,
                    *said_on_scoring,
                    *compared["notes"],
                ]
            )
        ),
    }
    write_json(join(folder, "metrics.json"), summary)
    write_bytes(join(folder, "table.md"), to_markdown(summary).encode())
    write_bytes(join(folder, "table.tex"), to_latex(summary).encode())
    for method in methods:
        content = openood_csv(sets, method, plan.unknowns, plan.groups)
        write_bytes(join(folder, "openood", f"{file_name(method)}.csv"), content.encode())
    return summary, spent


def _costs(fitted: Fitted, sets: dict[str, SetScores], methods: list[str], folder: str) -> dict[str, Cost]:
    kept = fitted.kept_bytes()
    clock = Clock()
    for scored in sets.values():
        clock.add(scored.seconds)
    sizes = sizes_in(folder)
    written = {method: sum(sizes[f"scores/{score_file(method, name)}"] for name in sets) for method in methods}
    return costs(fitted.clock, clock, kept, written)


def _write_table(folder: str, name: str, table: pa.Table) -> None:
    filesystem, path = resolve(join(folder, name))
    pq.write_table(table, path, filesystem=filesystem)
