"""``evaluate``: GHOST against its rivals on known and unknown test sets.

Plan → fit every method on the training store → score every set once → measure → write::

    EVAL/metrics.json           closed-set accuracy, one result a (method, unknown set), one a (method, group)
    EVAL/significance.json      paired tests of every rival against GHOST
    EVAL/curves.parquet         method, unknown, curve, x, y; curve = oscr, roc, oscr_top, oscr_bottom or v, x = FPR
    EVAL/per_class.parquet      method, unknown, class, name, n, accuracy, ccr (at FPR 10 %), f_at_c95
    EVAL/scores/*.parquet       <method>__<set>: key, pred, label, score
    EVAL/zscores.parquet        set, left, right, count: histograms of GHOST's s
    EVAL/example.json           one class, a known of it and an unknown taken for it, dimension by dimension
    EVAL/table.md, table.tex    the paper's tables
    EVAL/manifest.json          written last
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.config import EvaluateConfig
from ghost_ray.evaluate.fitting import fit_all
from ghost_ray.evaluate.illustrating import example, z_histograms
from ghost_ray.evaluate.measuring import average_groups, compare_with_ghost, measure_all
from ghost_ray.evaluate.plan import KNOWN, Plan, make_plan
from ghost_ray.evaluate.scoring import score_set
from ghost_ray.evaluate.tables import to_latex, to_markdown
from ghost_ray.files import OutputFolder, join, redact, remove_tree, resolve, write_bytes, write_json
from ghost_ray.manifest import Data, Manifest, provenance, write_manifest
from ghost_ray.runtime import ray_session


class EvaluationManifest(Manifest):
    """Manifest of an evaluation; ``rows`` counts the rows scored, ``sets`` each set's."""

    kind: Literal["evaluation"] = "evaluation"
    methods: list[str]
    sets: dict[str, int]


def run(config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate methods as configured; returns what metrics.json holds and where it was written."""
    plan = make_plan(config)
    with OutputFolder(config.out, overwrite=config.overwrite) as output:
        with ray_session(config):
            summary = _evaluate(config, plan, output.staging)
        sets = {name: reader.store.rows for name, reader in plan.sets.items()}
        manifest = EvaluationManifest(
            **provenance(config),
            network=plan.fit.store.manifest.network,
            data=[
                Data(uri=redact(reader.store.uri), kind="store", fingerprint=reader.store.fingerprint())
                for reader in (plan.fit, *plan.sets.values())
            ],
            rows=sum(sets.values()),
            methods=list(plan.scorers),
            sets=sets,
        )
        write_manifest(output.staging, manifest)
        output.publish()
    return {"evaluation": config.out, **summary}


def _evaluate(config: EvaluateConfig, plan: Plan, folder: str) -> dict[str, Any]:
    scratch = join(folder, "scratch")
    fitted = fit_all(plan.scorers, plan.fit, scratch)
    methods = list(plan.scorers)
    sets = {
        name: score_set(fitted, reader, name, methods, join(folder, "scores")) for name, reader in plan.sets.items()
    }
    remove_tree(scratch)
    store = plan.sets[KNOWN].store
    pairs = [(method, unknown) for unknown in plan.unknowns for method in methods]
    measured = measure_all(sets, pairs, [store.class_name(k) for k in range(store.classes)])
    _write_table(folder, "curves.parquet", measured.curves)
    _write_table(folder, "per_class.parquet", measured.per_class)
    compared = compare_with_ghost(sets, methods, plan.unknowns, config.draws, config.draw_size, config.seed)
    write_json(join(folder, "significance.json"), compared)
    if fitted.gaussians is not None:
        _write_table(folder, "zscores.parquet", z_histograms(sets))
        shown = example(plan.sets, sets, fitted.gaussians)
        if shown is not None:
            write_json(join(folder, "example.json"), shown)
    said_by_scorers = [note for scorer in plan.scorers.values() for note in scorer.notes()]
    said_on_scoring = [note for scored in sets.values() for note in scored.notes]
    summary = {
        "closed_set_accuracy": float(np.mean(sets[KNOWN].label == sets[KNOWN].pred)),
        "knowns": len(sets[KNOWN].label),
        "classes": store.classes,
        "dimensions": store.dimensions,
        "methods": methods,
        "unknowns": {name: len(sets[name].label) for name in plan.unknowns},
        "results": measured.results,
        "groups": average_groups(measured.results, plan.groups),
        "notes": list(dict.fromkeys([*plan.notes, *said_by_scorers, *said_on_scoring, *compared["notes"]])),
    }
    write_json(join(folder, "metrics.json"), summary)
    write_bytes(join(folder, "table.md"), to_markdown(summary).encode())
    write_bytes(join(folder, "table.tex"), to_latex(summary).encode())
    return summary


def _write_table(folder: str, name: str, table: pa.Table) -> None:
    filesystem, path = resolve(join(folder, name))
    pq.write_table(table, path, filesystem=filesystem)
