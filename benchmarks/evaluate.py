"""How long does an evaluation take, method by method? And knn against a bare faiss search.

    python benchmarks/evaluate.py [--methods all] [--rows 50000] [--training 100000] [--dimensions 1280]

Arrays are made up in memory: class Gaussians, and unknowns between them. Each method scores `rows` knowns and `rows`
unknowns in pieces, one per core as the job does, and all metrics are computed. Prints one JSON object:

seconds             by method, scores and metrics
fit_seconds         by method, in one process
processor_seconds   by method, of both and over all cores
cheap_seconds       ghost, msp, maxlogit, energy, react and scale together: fits, logits, scores, metrics; sharing what
                    the job lets them share
job_seconds         with --job: the cheap methods by `ghost-ray evaluate` from stores on disk, the whole command with
                    significance, curves and files
knn_vs_faiss        how many times as long the knn scorer takes as an IndexFlatL2 of the same bank asked for the same
                    neighbours, both on all cores, run in turn, best of several
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from ghost_ray import metrics, scorers
from ghost_ray.config import JobConfig
from ghost_ray.files.manifest import Network, provenance
from ghost_ray.rows import Head, Rows
from ghost_ray.scorers import Scorer, State
from ghost_ray.scorers.knn import KNN
from ghost_ray.store import ClusteredWriter, StoreManifest, finish_store, row_schema, to_table, write_head

CHEAP = ("ghost", "msp", "maxlogit", "energy", "react", "scale")
PIECE = 12_500  # rows; 64 MB of embeddings at D = 1280, what a task of the job reads


class Simulation:
    """Batches of a made-up network: the head points at the classes' centres."""

    def __init__(self, classes: int, dimensions: int) -> None:
        rng = np.random.default_rng(0)
        self.centres = rng.standard_normal((classes, dimensions), dtype=np.float32)
        self.head = Head(self.centres, (-0.5 * (self.centres**2).sum(axis=1)).astype(np.float32))

    def batches(self, rows: int, seed: int, *, known: bool) -> list[Rows]:
        """Rows in pieces, as a clustered store gives them."""
        rng = np.random.default_rng(seed)
        label = np.sort(rng.integers(0, len(self.centres), rows))
        made = []
        for start in range(0, rows, PIECE):
            mine = label[start : start + PIECE]
            embedding = rng.standard_normal((len(mine), self.centres.shape[1]), dtype=np.float32)
            other = rng.integers(0, len(self.centres), len(mine))
            embedding += self.centres[mine] if known else 0.6 * self.centres[mine] + 0.4 * self.centres[other]
            logits = self.head.logits(embedding)
            row_id = np.arange(start, start + len(mine), dtype=np.uint64)
            made.append(
                Rows(mine if known else np.full(len(mine), -1), logits.argmax(axis=1), embedding, logits, row_id)
            )
        return made


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def fresh(batches: list[Rows]) -> list[Rows]:
    """The same rows without what an earlier method has computed on them."""
    return [Rows(b.label, b.pred, b.embedding, b.logits, b.row_id) for b in batches]


def score_all(scorer: Scorer, batches: list[Rows]) -> np.ndarray:
    """Scores of all pieces, one per core; faiss itself uses all cores for one piece."""
    if scorer.name == "knn":
        return np.concatenate([scorer.score(batch) for batch in batches])
    with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1):
        return np.concatenate(list(pool.map(scorer.score, batches)))


def evaluate(scorer: Scorer, known: list[Rows], unknown: list[Rows]) -> Mapping[str, object]:
    label, pred = (np.concatenate([getattr(b, name) for b in known]) for name in ("label", "pred"))
    scores = metrics.OpenSetScores(
        known=score_all(scorer, fresh(known)),
        correct=label == pred,
        label=label,
        unknown=score_all(scorer, fresh(unknown)),
    )
    return metrics.evaluate(scores)


def fit_together(methods: tuple[str, ...], training: list[Rows], head: Head) -> list[Scorer]:
    """Fit as the job does: one piece per core, each read once per pass for all methods, the states merged in order."""
    classes, dimensions = head.weight.shape
    fitted = [scorers.create(method).bind(classes, dimensions, head) for method in methods]
    for pass_index in range(max(scorer.passes for scorer in fitted)):
        taking_part = [scorer for scorer in fitted if scorer.passes > pass_index]

        def accumulate(piece: Rows, taking_part: list[Scorer] = taking_part, now: int = pass_index) -> list[State]:
            states = [scorer.begin(now) for scorer in taking_part]
            for state in states:
                state.update(piece)
            return states

        with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1):
            first, *others = pool.map(accumulate, fresh(training))
        for scorer, state, *rest in zip(taking_part, first, *others, strict=True):
            for other in rest:
                state.merge(other)
            scorer.end_pass(pass_index, state)
    return fitted


def cheap_together(
    simulation: Simulation, training: list[Rows], known: list[Rows], unknown: list[Rows]
) -> dict[str, Any]:
    """What the job does for the cheap methods: every piece gets its logits once and is then scored by all."""
    fitted = fit_together(CHEAP, training, simulation.head)

    def score_piece(piece: Rows) -> list[np.ndarray]:
        batch = Rows(piece.label, piece.pred, piece.embedding, simulation.head.logits(piece.embedding), piece.row_id)
        return [scorer.score(batch) for scorer in fitted]

    with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1):
        scored = list(pool.map(score_piece, [*known, *unknown]))
    label, pred = (np.concatenate([getattr(b, name) for b in known]) for name in ("label", "pred"))
    found = {}
    for position, method in enumerate(CHEAP):
        parts = [scores[position] for scores in scored]
        split = len(known)
        pair = np.concatenate(parts[:split]), label == pred, label, np.concatenate(parts[split:])
        found[method] = metrics.evaluate(metrics.OpenSetScores(*pair))
    return found


def write_store(folder: str, batches: list[Rows], head: Head) -> None:
    """The rows of batches as a complete store."""
    writer = ClusteredWriter(folder, "part", row_schema(head.weight.shape[1]))
    for batch in batches:
        keys = pa.array([f"{row:08d}" for row in batch.row_id.tolist()])
        writer.write(to_table(keys, batch.label.astype(np.int32), batch.pred.astype(np.int32), batch.embedding))
    files = writer.close()
    write_head(folder, head)
    classes, dimensions = head.weight.shape
    manifest = StoreManifest(
        **provenance(JobConfig()),
        network=Network(name="made-up", classes=classes, dimensions=dimensions),
        rows=sum(len(batch) for batch in batches),
        layout="clustered",
    )
    finish_store(folder, manifest, files)


def job_seconds(head: Head, **sets: list[Rows]) -> float:
    """Seconds of the evaluate command on the cheap methods."""
    with tempfile.TemporaryDirectory() as place:
        for name, batches in sets.items():
            write_store(f"{place}/{name}", batches, head)
        command = [sys.executable, "-m", "ghost_ray", "evaluate", "--methods", ",".join(CHEAP), "--out", f"{place}/out"]
        command += ["--fit", f"{place}/fit", "--known", f"{place}/known", "--unknown", f"between={place}/unknown"]
        return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))[0]


def knn_vs_faiss(training: list[Rows], queries: Rows, rounds: int) -> dict[str, float]:
    """Best seconds of the knn scorer and of a bare search in the same normalised bank."""
    import faiss

    faiss.omp_set_num_threads(os.cpu_count() or 1)
    scorer = KNN().fit(lambda: training)
    bank = np.concatenate([b.embedding for b in training])
    faiss.normalize_L2(bank)
    index = faiss.IndexFlatL2(bank.shape[1])
    index.add(bank)
    asked = queries.embedding.copy()
    faiss.normalize_L2(asked)
    sides: dict[str, Callable[[], Any]] = {
        "knn": lambda: scorer.score(fresh([queries])[0]),
        "faiss": lambda: index.search(asked, scorer.k),
    }
    scorer.score(queries.take(np.arange(10)))  # builds its index
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, side in sides.items():
            best[name] = min(best[name], seconds(side)[0])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="all", help="names with commas, or all")
    parser.add_argument("--rows", type=int, default=50_000, help="knowns, and as many unknowns")
    parser.add_argument("--training", type=int, default=100_000, help="training rows, all of them in knn's bank")
    parser.add_argument("--dimensions", type=int, default=1280, help="D of the embedding")
    parser.add_argument("--classes", type=int, default=1000, help="K of the network")
    parser.add_argument("--queries", type=int, default=1_000, help="rows asked of knn and of faiss in turn")
    parser.add_argument("--rounds", type=int, default=3, help="runs of both; the best counts")
    parser.add_argument("--job", action="store_true", help="also run the command on stores, 1 GB on disk")
    options = parser.parse_args()
    methods = scorers.names() if options.methods == "all" else options.methods.split(",")

    simulation = Simulation(options.classes, options.dimensions)
    training = simulation.batches(options.training, 1, known=True)
    known = simulation.batches(options.rows, 2, known=True)
    unknown = simulation.batches(options.rows, 3, known=False)
    # Compiling and importing happen once in the life of a worker.
    for method in methods:
        evaluate(scorers.create(method).fit(lambda: [training[0].take(np.arange(2000))], simulation.head), *warm(known))

    fit_seconds, score_seconds, processor_seconds = {}, {}, {}
    for method in methods:
        scorer, start = scorers.create(method), time.process_time()
        fit_seconds[method], _ = seconds(partial(scorer.fit, lambda: fresh(training), simulation.head))
        score_seconds[method], _ = seconds(partial(evaluate, scorer, known, unknown))
        processor_seconds[method] = time.process_time() - start
        print(f"{method}: {fit_seconds[method]:.1f} s + {score_seconds[method]:.1f} s", file=sys.stderr, flush=True)
    best = knn_vs_faiss(training, known[0].take(np.arange(min(options.queries, len(known[0])))), options.rounds)
    cheap = min(seconds(lambda: cheap_together(simulation, training, known, unknown))[0] for _ in range(options.rounds))
    job = job_seconds(simulation.head, fit=training, known=known, unknown=unknown) if options.job else None
    print(
        json.dumps(
            {
                "seconds": {name: round(value, 3) for name, value in score_seconds.items()},
                "fit_seconds": {name: round(value, 3) for name, value in fit_seconds.items()},
                "processor_seconds": {name: round(value, 3) for name, value in processor_seconds.items()},
                "cheap_seconds": round(cheap, 3),
                "job_seconds": None if job is None else round(job, 3),
                "knn_vs_faiss": round(best["knn"] / best["faiss"], 3),
                "knn_and_faiss_seconds": {name: round(value, 3) for name, value in best.items()},
                "cores": os.cpu_count(),
            }
        )
    )


def warm(known: list[Rows]) -> tuple[list[Rows], list[Rows]]:
    few = [known[0].take(np.arange(64))]
    return few, few


if __name__ == "__main__":
    main()
