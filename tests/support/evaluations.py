"""Stores to evaluate on, and how to look at what an evaluation found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ghost_ray.config import EvaluateConfig
from support.stores import Toy, read_row_files, write_store


def make_toy() -> Toy:
    return Toy.make(np.random.default_rng(0), classes=6, dimensions=12)


def write_stores(place: Path, toy: Toy) -> None:
    """fit, known, near and far in several files, so that several tasks and shards take part."""
    rng = np.random.default_rng(1)
    names = [f"class {k}" for k in range(toy.classes)]
    write_store(place / "fit", *toy.known(rng, 900), toy, group_rows=50)
    write_store(place / "known", *toy.known(rng, 400), toy, group_rows=40, class_names=names)
    write_store(place / "near", toy.unknown(rng, 300, 1.5), None, toy, group_rows=40)
    write_store(place / "far", toy.unknown(rng, 200, 3.0), None, toy)


def settings(place: Path, out: Path, **options: Any) -> EvaluateConfig:
    given = {
        "fit": str(place / "fit"),
        "known": str(place / "known"),
        "unknown": {"near": str(place / "near"), "far": str(place / "far")},
        "draw_size": 100,
        "out": str(out),
    }
    return EvaluateConfig.model_validate(given | options)


def rows_of(place: Path, name: str) -> dict[str, np.ndarray]:
    """Columns of a store's rows, in its order."""
    table = read_row_files(place / name / "rows")
    columns = {c: table[c].to_numpy() for c in ("key", "label", "pred")}
    return columns | {"embedding": np.stack(table["embedding"].to_numpy())}


def one(result: dict[str, Any], method: str, unknown: str) -> dict[str, Any]:
    """The result of one method on one unknown set."""
    return next(r for r in result["results"] if (r["method"], r["unknown"]) == (method, unknown))
