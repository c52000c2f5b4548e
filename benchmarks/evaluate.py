"""How long does an evaluation take, method by method? And knn against a bare faiss search.

    python benchmarks/evaluate.py [--methods all] [--rows 50000] [--training 100000] [--dimensions 1280]

Arrays are made up in memory: class Gaussians, and unknowns between them. Each method scores `rows` knowns and `rows`
unknowns in pieces, a piece a core as the job does, and all metrics are computed. Prints one JSON object: `seconds` by
method (scores and metrics), `fit_seconds` by method, `cheap_seconds` (ghost, msp, maxlogit, energy, react and scale
together: fits, logits, scores and metrics, sharing what the job lets them share), and `knn_vs_faiss`: how many times
as long the knn scorer takes as an IndexFlatL2 of the same bank asked for the same neighbours, both run in turn, best
of several.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ghost_ray import metrics, scorers
from ghost_ray.scorers import Batch, Head, Scorer, ShardedScorer

CHEAP = ("ghost", "msp", "maxlogit", "energy", "react", "scale")
PIECE = 12_500  # rows; 64 MB of embeddings at D = 1280, what a task of the job reads


class Simulation:
    """Batches of a made-up network: the head points at the classes' centres."""

    def __init__(self, classes: int, dimensions: int) -> None:
        rng = np.random.default_rng(0)
        self.centres = rng.standard_normal((classes, dimensions), dtype=np.float32)
        self.head = Head(self.centres, (-0.5 * (self.centres**2).sum(axis=1)).astype(np.float32))

    def batches(self, rows: int, seed: int, *, known: bool) -> list[Batch]:
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
                Batch(embedding, logits, logits.argmax(axis=1), mine if known else np.full(len(mine), -1), row_id)
            )
        return made


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def fresh(batches: list[Batch]) -> list[Batch]:
    """The same rows without what an earlier method has computed on them."""
    return [Batch(b.embedding, b.logits, b.pred, b.label, b.row_id) for b in batches]


def score_all(scorer: Scorer, batches: list[Batch]) -> np.ndarray:
    """Scores of all pieces, a piece a core."""
    if isinstance(scorer, ShardedScorer):
        return np.concatenate([scorer.score(batch) for batch in batches])
    with ThreadPoolExecutor(os.cpu_count()) as pool, threadpool_limits(1):
        return np.concatenate(list(pool.map(scorer.score, batches)))


def evaluate(scorer: Scorer, known: list[Batch], unknown: list[Batch]) -> dict[str, Any]:
    label, pred = (np.concatenate([getattr(b, name) for b in known]) for name in ("label", "pred"))
    scores = metrics.OpenSetScores(
        known=score_all(scorer, fresh(known)),
        correct=label == pred,
        label=label,
        unknown=score_all(scorer, fresh(unknown)),
    )
    return metrics.evaluate(scores)


def cheap_together(
    simulation: Simulation, training: list[Batch], known: list[Batch], unknown: list[Batch]
) -> dict[str, Any]:
    """What the job does for the cheap methods: every piece gets its logits once and is then scored by all."""
    fitted = [scorers.create(method).fit(lambda: fresh(training), simulation.head) for method in CHEAP]

    def score_piece(piece: Batch) -> list[np.ndarray]:
        batch = Batch(piece.embedding, simulation.head.logits(piece.embedding), piece.pred, piece.label, piece.row_id)
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


def knn_vs_faiss(training: list[Batch], queries: Batch, rounds: int) -> dict[str, float]:
    """Best seconds of the knn scorer and of a bare search in the same normalised bank."""
    import faiss

    scorer = scorers.create("knn").fit(lambda: training)
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
    parser.add_argument("--queries", type=int, default=2_000, help="rows asked of knn and of faiss in turn")
    parser.add_argument("--rounds", type=int, default=3, help="runs of both; the best counts")
    options = parser.parse_args()
    methods = scorers.names() if options.methods == "all" else options.methods.split(",")

    simulation = Simulation(options.classes, options.dimensions)
    training = simulation.batches(options.training, 1, known=True)
    known = simulation.batches(options.rows, 2, known=True)
    unknown = simulation.batches(options.rows, 3, known=False)
    # Compiling and importing happen once in the life of a worker.
    for method in methods:
        evaluate(scorers.create(method).fit(lambda: [training[0].take(np.arange(2000))], simulation.head), *warm(known))

    fit_seconds, score_seconds, auroc = {}, {}, {}
    for method in methods:
        scorer = scorers.create(method)
        fit_seconds[method], _ = seconds(lambda s=scorer: s.fit(lambda: fresh(training), simulation.head))
        score_seconds[method], found = seconds(lambda s=scorer: evaluate(s, known, unknown))
        auroc[method] = round(found["auroc"], 4)
    best = knn_vs_faiss(training, known[0].take(np.arange(min(options.queries, len(known[0])))), options.rounds)
    cheap = min(seconds(lambda: cheap_together(simulation, training, known, unknown))[0] for _ in range(options.rounds))
    print(
        json.dumps(
            {
                "seconds": {name: round(value, 3) for name, value in score_seconds.items()},
                "fit_seconds": {name: round(value, 3) for name, value in fit_seconds.items()},
                "cheap_seconds": round(cheap, 3),
                "knn_vs_faiss": round(best["knn"] / best["faiss"], 3),
                "knn_and_faiss_seconds": {name: round(value, 3) for name, value in best.items()},
                "auroc": auroc,
                "cores": os.cpu_count(),
            }
        )
    )


def warm(known: list[Batch]) -> tuple[list[Batch], list[Batch]]:
    few = [known[0].take(np.arange(64))]
    return few, few


if __name__ == "__main__":
    main()
