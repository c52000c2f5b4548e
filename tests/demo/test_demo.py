"""The demo end to end, checked against plain numpy, scipy and scikit-learn; and interrupted at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file
from scipy.special import logsumexp, softmax
from scipy.stats import shapiro
from sklearn.metrics import auc, roc_auc_score, roc_curve
from statsmodels.stats.multitest import multipletests
from support.mistakes import ON_IMPORT, Arrays
from support.stores import read_row_files

from ghost_ray import report
from ghost_ray.cluster import threads
from ghost_ray.config import EvaluateConfig, FitConfig, ImportConfig, ReportConfig
from ghost_ray.jobs import fit, importing
from ghost_ray.jobs.evaluate.evaluate_notes import noticed
from ghost_ray.jobs.evaluate.evaluate_plan import make_plan
from ghost_ray.jobs.importing.import_job import ImportResult
from ghost_ray.model import Model
from ghost_ray.store import Store


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished demo, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    answer = subprocess.run(
        [sys.executable, "-m", "ghost_ray", "demo", "--out", "out"],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # threads that wait for each other are slow beside another test
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return folder / "out", answer.stdout


def arrays(store: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings, labels and logits of a store, read without any of ghost_ray's code."""
    rows = read_row_files(store / "rows")
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
    assert set(found) == {*expected, "nnguide:k=10:fraction=1"}
    for method, values in expected.items():
        for name, value in values.items():
            assert found[method][name] == pytest.approx(value, abs=1e-6), (method, name)
    assert json.loads((out / "audit/summary.json").read_text())["rejected_fraction"] == pytest.approx(
        rejected, abs=1e-6
    )
    assert expected["ghost"]["auroc"] > 0.9


def test_it_ends_in_a_table_and_the_page(demo: tuple[Path, str], tmp_path: Path) -> None:
    out, printed = demo
    for word in (
        "GHOST",
        "MSP",
        "MaxLogit",
        "Energy",
        "NNGuide",
        "AUOSCR",
        "AUROC",
        "FPR95",
        "F@C95",
        "V",
        "accuracy",
        "normal",
    ):
        assert word in printed
    assert str(Path("out/report.html")) in printed
    assert (out / "report.html").stat().st_size < 10 << 20
    report.run(ReportConfig(folders=(str(out),), out=str(tmp_path / "again.html"), plots=False))
    for page in (out / "report.html", tmp_path / "again.html"):
        assert "Networks side by side" not in page.read_text()  # the study has a page of its own
    assert "<title>GHOST on handwritten digits" in (out / "report.html").read_text()
    assert {p.name for p in out.iterdir()} == {
        "images", "network", "stores", "model", "audit", "evaluation", "study", "report.html",
        "manifest.json",
    }  # fmt: skip


def test_its_study_sets_the_network_beside_itself_after_a_few_epochs(demo: tuple[Path, str]) -> None:
    out, printed = demo
    assert str(Path("out/study/report.html")) in printed
    study = json.loads((out / "study/results.json").read_text())
    trained, early = study["networks"]
    assert (trained["name"], early["name"], study["failed"]) == ("trained", "early", [])
    assert trained["closed_set_accuracy"] > early["closed_set_accuracy"] > 0.3
    metrics = json.loads((out / "evaluation/metrics.json").read_text())
    mine = {(c["method"], c["metric"]): c["value"] for c in study["results"] if c["network"] == "trained"}
    for result in metrics["results"]:
        assert mine[result["method"], "auoscr"] == result["auoscr"]
    assert "data:image/jpeg;base64," in (out / "study/report.html").read_text()


def test_a_finished_demo_is_not_mixed_with_another(demo: tuple[Path, str]) -> None:
    out, _ = demo
    answer = subprocess.run(
        [sys.executable, "-m", "ghost_ray", "demo", "--out", out.name],
        cwd=out.parent, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (answer.returncode, "--overwrite" in answer.stderr) == (2, True)


def test_nothing_is_noticed_in_it(demo: tuple[Path, str]) -> None:
    out, _ = demo
    for folder in ("stores/train", "stores/test", "stores/unknown", "model"):
        assert json.loads((out / folder / "manifest.json").read_text())["notes"] == []
    said = json.loads((out / "evaluation/metrics.json").read_text())["notes"]
    assert {note.split(":")[0] for note in said} <= {"nnguide", "significance"}, "of methods and draws, not of mistakes"


def import_arrays(place: Path, given: Arrays, **options: Any) -> ImportResult:
    place.mkdir()
    for name in ("features", "logits", "labels"):
        np.save(place / f"{name}.npy", getattr(given, name))
    files = {name: str(place / f"{name}.npy") for name in ("features", "logits", "labels")}
    if options.get("unknown"):
        del files["labels"]
    return importing.run(ImportConfig.model_validate({**files, "out": str(place / "store"), **options}))


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_mistake_is_noticed_in_one_line_when_arrays_are_imported(
    demo: tuple[Path, str], tmp_path: Path, part: str
) -> None:
    features, labels, logits = arrays(demo[0] / "stores" / part)
    sound = Arrays(features, logits, labels)
    assert import_arrays(tmp_path / "sound", sound)["notes"] == []
    for mistake, (make, words) in ON_IMPORT.items():
        result = import_arrays(tmp_path / mistake, make(sound))
        assert len(result["notes"]) == 1, mistake
        assert words in result["notes"][0], mistake
        assert Store.open(result["store"]).manifest.notes == result["notes"], mistake


def test_labels_that_do_not_belong_are_noticed_by_fit(demo: tuple[Path, str], tmp_path: Path) -> None:
    features, labels, logits = arrays(demo[0] / "stores/train")
    make, words = ON_IMPORT["labels shuffled"]
    store = import_arrays(tmp_path / "wrong", make(Arrays(features, logits, labels)))["store"]
    result = fit.run(FitConfig(store=store, out=str(tmp_path / "model")))
    (note,) = result["notes"]
    assert words in note
    assert Model.open(str(tmp_path / "model")).manifest.notes == [note]


def test_sets_that_do_not_belong_together_are_noticed_by_evaluate(demo: tuple[Path, str], tmp_path: Path) -> None:
    stores = {part: str(demo[0] / "stores" / part) for part in ("train", "test", "unknown")}
    (f, y, z), (fu, yu, zu) = arrays(demo[0] / "stores/train"), arrays(demo[0] / "stores/unknown")
    network = {"model": "ghost_ray.demo.digits:network"}
    rows = np.r_[0:40]
    mixed = Arrays(np.r_[fu, f[rows]], np.r_[zu, z[rows]], np.r_[yu, yu[rows]])
    still = f.copy()
    still[:, 7] = 1e-7 * np.random.default_rng(0).normal(size=len(f))
    made = {
        "mixed": import_arrays(tmp_path / "mixed", mixed, unknown=True, **network),
        "few": import_arrays(tmp_path / "few", Arrays(f[y != 3], z[y != 3], y[y != 3]), **network),
        "still": import_arrays(tmp_path / "still", Arrays(still, z, y), **network),
        "other": import_arrays(tmp_path / "other", Arrays(fu, zu[::-1], yu), unknown=True, **network),
    }
    stores |= {name: result["store"] for name, result in made.items()}
    models = {}
    for name in ("train", "test", "few", "still"):
        fit.run(FitConfig(store=stores[name], out=str(tmp_path / f"model-{name}")))
        models[name] = Model.open(str(tmp_path / f"model-{name}")).gaussians

    def notes(fit: str = "train", known: str = "test", unknown: str = "unknown") -> list[str]:
        config = EvaluateConfig(fit=stores[fit], known=stores[known], unknown={"strange": stores[unknown]}, out="-")
        with threads():
            return noticed(make_plan(config), models[fit])

    assert notes() == []
    assert notes(known="train") == [f"{len(y)} of {len(y)} rows of known are also in fit"]
    assert notes(unknown="mixed") == [f"40 of {len(fu) + 40} rows of strange are also in fit"]
    assert notes(known="train", fit="test", unknown="mixed") == [
        f"40 of {len(fu) + 40} rows of strange are also in known"
    ]
    (lacking,) = notes(fit="few")
    assert re.fullmatch(r"1 class of known has no row in fit: digit-3 \(\d+ of 540 knowns\)", lacking)
    head, heavy = notes(fit="still")
    assert head.startswith("fit: the logits do not follow from the features and the head"), "nor do they, by then"
    assert "1 of 64 dimension makes up" in heavy
    assert "(7)" in heavy
    (order, head) = notes(unknown="other")
    assert order.startswith("strange: the nearest class mean")
    assert head.startswith("strange: the logits do not follow from the features and the head")


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
        time.sleep(1 + 3 * attempt + moments.random() * 3)
        if process.poll() is not None:
            break
        family = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        _, told = process.communicate(timeout=60)
        took = time.monotonic() - began
        if (tmp_path / "out").exists():  # it had finished at that moment
            break
        assert process.returncode == 130, told
        assert took < 10, f"prompt back after {took:.1f} s"  # by itself Ray would wait for its workers
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive, alive
        assert [p.name for p in tmp_path.iterdir()] == []
