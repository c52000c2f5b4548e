"""Studies: small stores of made-up networks, and a study made of the paper's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ghost_ray import published
from ghost_ray.config.study_settings import StudyConfig
from ghost_ray.report.study.study_findings import Cell, NetworkFindings, Study
from support.stores import Toy, write_store

SETS = {"near": 1.5, "far": 3.0, "third": 2.0}


def write_network(folder: Path, name: str, seed: int) -> None:
    """Stores fit, known and one per unknown set, of a network called ``name``."""
    rng = np.random.default_rng(seed)
    toy = Toy.make(rng, classes=6, dimensions=8, spread=1.2)
    about = {"network": {"name": name}, "class_names": [f"class {k}" for k in range(6)]}
    write_store(folder / "fit", *toy.known(rng, 400), toy, **about)
    write_store(folder / "known", *toy.known(rng, 300), toy, **about)
    for unknown, spread in SETS.items():
        write_store(folder / unknown, toy.unknown(rng, 250, spread), None, toy, network={"name": name})


def stores_of(folder: Path, sets: tuple[str, ...] = ("near", "far")) -> dict[str, Any]:
    """A network's entry in a study's file."""
    unknown = {name: str(folder / name) for name in sets}
    return {"stores": {"fit": str(folder / "fit"), "known": str(folder / "known"), "unknown": unknown}}


def settings(folder: Path, networks: dict[str, Any], **changes: Any) -> StudyConfig:
    """A study of stores below ``folder``."""
    given = {
        "out": str(folder / "study"),
        "networks": networks,
        "groups": {"both": ["near", "far"]},
        "methods": ["ghost", "msp", "maxlogit"],
        "draws": 4,
        "draw_size": 100,
        "plots": False,
    }
    return StudyConfig.model_validate(given | changes)


def of_the_paper(table: str, networks: tuple[str, ...]) -> Study:
    """A study whose cells are those of one of the paper's tables."""
    numbers = [n for n in published.find(table=table) if n.network in networks]
    cells: list[Cell] = [
        {
            "network": n.network,
            "unknown": n.unknown,
            "method": n.method,
            "metric": n.metric,
            "value": n.value,
            "std": None,
        }
        for n in numbers
    ]
    sets = list(dict.fromkeys(n.unknown for n in numbers))
    return {
        "reference": "ghost",
        "methods": list(dict.fromkeys(n.method for n in numbers)),
        "rivals": list(dict.fromkeys(n.method for n in numbers if n.method != "ghost")),
        "unknowns": sets,
        "groups": {},
        "draws": 10,
        "draw_size": 1000,
        "seed": 0,
        "alpha": 0.05,
        "networks": [_network(name, sets) for name in networks],
        "failed": [],
        "results": cells,
        "group_means": [],
        "tests": [],
        "pooled": [],
        "published": [],
        "notes": [],
    }


def _network(name: str, sets: list[str]) -> NetworkFindings:
    return {
        "name": name,
        "model": name,
        "closed_set_accuracy": 0.8,
        "knowns": 50_000,
        "classes": 1000,
        "dimensions": 1280,
        "unknowns": dict.fromkeys(sets, 5000),
        "negative_top_logits": dict.fromkeys(("known", *sets), 0),
        "evaluations": {},
        "audit": {
            "tests": 1_280_000,
            "rejected": 35_712,
            "rejected_fraction": 0.0279,
            "degenerate": 0,
            "alpha": 0.05,
            "family": "all",
            "median_n": 1100.0,
            "verdict": "",
        },
        "notes": [],
    }
