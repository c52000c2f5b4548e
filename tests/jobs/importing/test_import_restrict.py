"""A head of 1,000 classes of which the data has 52: narrowed to them, GHOST rejects unknowns and not every known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ghost_ray.config import EvaluateConfig, ImportConfig
from ghost_ray.jobs import evaluate
from ghost_ray.jobs.importing import run

K, D, PRESENT = 1000, 64, np.arange(0, 520, 10)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sets of a made-up network; some knowns look more like a class that the data does not have."""
    folder, rng = tmp_path_factory.mktemp("arrays"), np.random.default_rng(0)
    weight = rng.standard_normal((K, D)) / np.sqrt(D)
    for name, rows, strength in (("fit", 4000, 10.0), ("known", 1500, 10.0), ("unknown", 800, 0.0)):
        labels = rng.choice(PRESENT, rows)
        features = strength * weight[labels] + rng.standard_normal((rows, D)) * 2
        np.savez(folder / f"{name}.npz", features=features, logits=features @ weight.T, labels=labels)
    np.savez(folder / "head.npz", weight=weight, bias=np.zeros(K))
    return folder


def fpr95(arrays: Path, out: Path, *, restrict: bool) -> float:
    for name in ("fit", "known", "unknown"):
        narrowing = {"restrict": True} if name == "fit" else {"restrict_like": str(out / "fit")}
        run(
            ImportConfig(
                features=str(arrays / f"{name}.npz"),
                logits=str(arrays / f"{name}.npz"),
                head=str(arrays / "head.npz"),
                unknown=name == "unknown",
                out=str(out / name),
                **(narrowing if restrict else {}),
            )
        )
    found = evaluate.run(
        EvaluateConfig(
            fit=str(out / "fit"),
            known=str(out / "known"),
            unknown={"unknown": str(out / "unknown")},
            methods=("ghost",),
            draw_size=100,
            out=str(out / "evaluation"),
        )
    )
    return float(found["results"][0]["fpr95"])


def test_a_narrowed_head_does_not_sink_ghost(arrays: Path, tmp_path: Path, local_ray: None) -> None:
    assert fpr95(arrays, tmp_path / "whole", restrict=False) == 1
    assert fpr95(arrays, tmp_path / "narrowed", restrict=True) < 0.5
