"""The demo end to end, checked against plain numpy, scipy and scikit-learn; and interrupted at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from scipy.special import logsumexp, softmax
from scipy.stats import shapiro
from sklearn.metrics import auc, roc_auc_score, roc_curve
from statsmodels.stats.multitest import multipletests


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished demo, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    answer = subprocess.run(
        [sys.executable, "-m", "ghost_ray", "demo", "--out", "out"],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return folder / "out", answer.stdout


def arrays(store: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings, labels and logits of a store, read without any of ghost_ray's code."""
    rows = pq.read_table(store / "rows")
    embedding = np.array(rows["embedding"].to_pylist())
    head = load_file(store / "head.safetensors")
    return embedding, rows["label"].to_numpy(), embedding @ head["weight"].T.astype(float) + head["bias"]


def oscr(known: np.ndarray, correct: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds, FPR and CCR by counting at every distinct score."""
    thresholds = np.unique(np.r_[known, unknown])[::-1]
    ccr = np.array([(correct & (known >= t)).mean() for t in thresholds])
    fpr = np.array([(unknown >= t).mean() for t in thresholds])
    return thresholds, fpr, ccr


def by_hand(out: Path) -> tuple[dict[str, dict[str, float]], float]:
    """Every figure of the demo's table, and the share of rejected tests, in plain numpy, scipy and scikit-learn."""
    fit, y, z = arrays(out / "stores/train")
    right = z.argmax(1) == y
    groups = [fit[right & (y == k)] for k in range(6)]
    mean, std = np.stack([g.mean(0) for g in groups]), np.stack([g.std(0, ddof=1) for g in groups])
    assert (std > 0).all()
    p = np.array([shapiro(g[:, d]).pvalue for g in groups for d in range(g.shape[1])])
    (f, y, z), (fu, _, zu) = arrays(out / "stores/test"), arrays(out / "stores/unknown")

    def ghost(f: np.ndarray, z: np.ndarray) -> np.ndarray:
        k = z.argmax(1)
        return z.max(1) / (np.abs(f - mean[k]) / std[k]).sum(1)

    scores = {
        "ghost": (ghost(f, z), ghost(fu, zu)),
        "msp": (softmax(z, 1).max(1), softmax(zu, 1).max(1)),
        "maxlogit": (z.max(1), zu.max(1)),
        "energy": (logsumexp(z, 1), logsumexp(zu, 1)),
    }
    correct, found = z.argmax(1) == y, {}
    for name, (s, u) in scores.items():
        truth = np.r_[np.ones(len(s)), np.zeros(len(u))]
        thresholds, fpr, ccr = oscr(s, correct, u)
        roc = roc_curve(truth, np.r_[s, u], drop_intermediate=False)
        theta = thresholds[fpr <= 0.1].min()
        ccr_k = np.array([(correct & (s >= theta))[y == k].mean() for k in range(6)])
        found[name] = {
            "auroc": roc_auc_score(truth, np.r_[s, u]),
            "auoscr": auc(np.r_[0, fpr], np.r_[0, ccr]),
            "fpr95": roc[0][np.flatnonzero(roc[1] >= 0.95)[0]],
            "f_at_c95": fpr[np.flatnonzero(ccr >= 0.95 * correct.mean())[0]],
            "ccr_cv": ccr_k.std(ddof=1) / ccr_k.mean(),
        }
    return found, multipletests(p, 0.05, "holm")[0].mean()


def test_the_numbers_are_those_of_plain_numpy(demo: tuple[Path, str]) -> None:
    out, _ = demo
    expected, rejected = by_hand(out)
    metrics = json.loads((out / "evaluation/metrics.json").read_text())
    found: dict[str, dict[str, Any]] = {result["method"]: result for result in metrics["results"]}
    assert set(found) == set(expected)
    for method, values in expected.items():
        for name, value in values.items():
            assert found[method][name] == pytest.approx(value, abs=1e-6), (method, name)
    assert json.loads((out / "audit/summary.json").read_text())["rejected_fraction"] == pytest.approx(
        rejected, abs=1e-6
    )
    assert expected["ghost"]["auroc"] > 0.9


def test_it_ends_in_a_table_and_the_page(demo: tuple[Path, str]) -> None:
    out, printed = demo
    for word in ("GHOST", "MSP", "MaxLogit", "Energy", "AUOSCR", "AUROC", "FPR95", "F@C95", "V", "accuracy", "normal"):
        assert word in printed
    assert str(Path("out/report.html")) in printed
    assert (out / "report.html").stat().st_size < 10 << 20
    assert {p.name for p in out.iterdir()} == {
        "images", "network", "stores", "model", "audit", "evaluation", "report.html", "manifest.json",
    }  # fmt: skip


def test_a_finished_demo_is_not_mixed_with_another(demo: tuple[Path, str]) -> None:
    out, _ = demo
    answer = subprocess.run(
        [sys.executable, "-m", "ghost_ray", "demo", "--out", out.name],
        cwd=out.parent, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (answer.returncode, "--overwrite" in answer.stderr) == (2, True)


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def listen_to_ctrl_c() -> None:
    """A shell starts what runs in its background deaf to Ctrl-C, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    moments = random.Random(0)
    for attempt in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "ghost_ray", "demo", "--out", "out"],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=listen_to_ctrl_c,
        )  # fmt: skip
        time.sleep(1 + 5 * attempt + moments.random() * 4)
        if process.poll() is not None:
            break
        family = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        _, told = process.communicate(timeout=60)
        took = time.monotonic() - began
        assert process.returncode == 130, told
        assert took < 5, f"prompt back after {took:.1f} s"
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive, alive
        assert [p.name for p in tmp_path.iterdir()] == []
