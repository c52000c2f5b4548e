"""Imported stores of networks of one shape: told apart by their heads, and said so where nothing tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stores import Toy

from ghost_ray.config import EvaluateConfig, FitConfig, ImportConfig, ScoreConfig
from ghost_ray.errors import InputError
from ghost_ray.files.tensors import write_tensors
from ghost_ray.jobs import evaluate, fit, importing, score


def _import(folder: Path, name: str, seed: int, rows: int, **options: Any) -> str:
    """A store of the network with this seed, with its head unless ``head=None`` is given."""
    rng = np.random.default_rng(seed)
    toy = Toy.make(rng, classes=4, dimensions=6)
    embedding, label = toy.known(np.random.default_rng(rows), rows)
    place = folder / f"{name}-files"
    place.mkdir()
    given = {"features": embedding, "logits": toy.logits(embedding), "labels": label}
    for kind, array in given.items():
        np.save(place / f"{kind}.npy", array)
    write_tensors(str(place / "head.safetensors"), {"weight": toy.weight, "bias": toy.bias})
    files = {kind: str(place / f"{kind}.npy") for kind in given} | {"head": str(place / "head.safetensors")}
    if options.get("unknown"):
        del files["labels"]
    importing.run(ImportConfig(**{**files, **options}, out=str(folder / name)))
    return str(folder / name)


def _evaluate(folder: Path, known_seed: int, **options: Any) -> Any:
    fitted = _import(folder, "fit", 0, 300, **options)
    known = _import(folder, "known", known_seed, 100, **options)
    unknown = _import(folder, "unknown", 0, 80, unknown=True, **options)
    config = EvaluateConfig(
        fit=fitted, known=known, unknown={"u": unknown}, methods=("ghost", "msp"), draws=2, out=str(folder / "e")
    )
    return evaluate.run(config)


def test_stores_with_other_heads_do_not_combine(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"imported .*head [0-9a-f]{12}.*use results of one network"):
        _evaluate(tmp_path, known_seed=1)
    model = str(tmp_path / "model")
    fit.run(FitConfig(store=str(tmp_path / "fit"), out=model))
    options = {"gaussians": model, "threshold": 0.1, "out": str(tmp_path / "s.parquet")}
    with pytest.raises(InputError, match="use results of one network"):
        score.run(ScoreConfig.model_validate({**options, "store": str(tmp_path / "known")}))
    notes = score.run(ScoreConfig.model_validate({**options, "store": str(tmp_path / "fit")}))["notes"]
    assert not any("nothing but the shape" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "noted"), [({}, False), ({"head": None}, True), ({"head": None, "model": "mine"}, False)]
)
def test_where_nothing_tells_networks_apart_a_note_says_so(
    tmp_path: Path, options: dict[str, Any], noted: bool
) -> None:
    notes = _evaluate(tmp_path, known_seed=0, **options)["notes"]
    said = [note for note in notes if "nothing but the shape (K=4, D=6) says that known, u are of the network" in note]
    assert len(said) == int(noted)
