"""A toy metric, a toy method and a toy image format, one file each, are found wherever their kind is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support import toy_format, toy_metric, toy_scorer
from support.evaluations import make_toy, one, rows_of, write_stores
from support.networks import CLASSES
from support.raw_sources import picture, refusal

from ghost_ray import metrics, scorers, sources
from ghost_ray.cli import main
from ghost_ray.cli.show import render
from ghost_ray.metrics import OpenSetScores
from ghost_ray.store import Store

METHODS = ["ghost", "msp", "toy", "toy:power=2"]
TITLES = ["GHOST", "MSP", "Toy score", "Toy score (power=2)"]


@pytest.fixture(scope="module")
def added() -> Iterator[None]:
    with ExitStack() as stack:
        for toy in (toy_metric, toy_scorer, toy_format):
            stack.enter_context(toy.added())
        yield
    for catalogue in (metrics.registered, scorers.names, sources.formats):
        assert "toy" not in str(catalogue()).lower()


def say(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints, run in this process, which is the only one that knows the toys."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr()
    assert ended.value.code == 0, shown.err
    return shown.out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores")
    write_stores(place, make_toy())
    return place


@pytest.fixture(scope="module")
def evaluated(place: Path, added: None, local_ray: None) -> dict[str, Any]:
    """An evaluation with the toys, by its settings in YAML; its result, and `out`."""
    from ghost_ray.config import EvaluateConfig, build
    from ghost_ray.jobs.evaluate import run

    (place / "evaluate.yaml").write_text(
        f"fit: {place}/fit\nknown: {place}/known\nunknown: {{near: {place}/near, far: {place}/far}}\n"
        f"group: {{both: 'near,far'}}\ndraw_size: 100\nmethods: [ghost, msp, toy, toy:power=2]\nout: {place}/eval\n"
    )
    return run(build(EvaluateConfig, {}, str(place / "evaluate.yaml")))


def test_help_lists_them(capsys: pytest.CaptureFixture[str], added: None) -> None:
    for command in ("evaluate", "demo"):
        assert re.search(r"^  toy +Toy score, power=1$", say(capsys, command, "--help"), re.M)
    assert "  toy         toy files: one line of" in say(capsys, "extract", "--help")


def test_the_method_and_the_metric_are_in_the_files(evaluated: dict[str, Any], place: Path) -> None:
    content = json.loads((place / "eval/metrics.json").read_text())
    assert content["methods"] == METHODS
    assert all(toy_metric.TOY.field in row for row in [*content["results"], *content["groups"]])
    rows = {name: rows_of(place, name) for name in ("known", "far")}
    known, far = (
        make_toy().logits(part["embedding"]).max(1) / (part["embedding"].astype(float) ** 2).sum(1) ** 0.5
        for part in rows.values()
    )
    right = rows["known"]["label"] == rows["known"]["pred"]
    by_hand = toy_metric.gap(OpenSetScores(known, right, rows["known"]["label"], far))
    assert one(content, "toy", "far")["toy_gap"] == pytest.approx(by_hand)
    assert one(content, "toy", "far")["auroc"] != one(content, "toy:power=2", "far")["auroc"]
    tests = json.loads((place / "eval/significance.json").read_text())["tests"]
    assert {test["method"] for test in tests if test["metric"] == "toy_gap"} == set(METHODS[1:])
    named = {file.name for file in (place / "eval/scores").iterdir()}
    assert {"toy__near.parquet", "toy-power=2__near.parquet"} <= named


def test_they_are_in_the_tables(evaluated: dict[str, Any], place: Path) -> None:
    markdown, latex = ((place / f"eval/table.{suffix}").read_text() for suffix in ("md", "tex"))
    assert "### A table of toys: ↑ Toy gap" in markdown
    assert markdown.count("| Unknowns | GHOST | MSP | Toy score | Toy score (power=2) |") == 4
    assert f"{one(evaluated, 'toy', 'near')['toy_gap']:.3f}" in markdown.split("A table of toys")[1]
    assert r"\caption{A table of toys: $\uparrow$ Toy gap.}" in latex


def test_they_are_on_the_terminal(
    evaluated: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    render("evaluate", evaluated)
    shown = capsys.readouterr().out
    assert "A table of toys: ↑ Toy gap" in shown
    assert all(title in shown for title in TITLES)
    made = {"audit": {"verdict": "Normal."}, "study": {"report": "s"}, "out": "o", "report": "r"}
    render("demo", {"evaluate": evaluated, **made})
    shown = capsys.readouterr().out
    assert "Toy gap ↑" in shown
    assert f"Toy gap: {toy_metric.TOY.meaning}." in shown
    assert all(title in shown for title in TITLES)


def test_they_are_on_the_page(evaluated: dict[str, Any], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say(capsys, "report", str(place / "eval"), "--no-plots", "--out", str(place / "report.html"))
    page = (place / "report.html").read_text()
    for title in TITLES:
        assert f">{title}<" in page
    assert "↑ Toy gap" in page
    assert f"Toy gap: {toy_metric.TOY.meaning}." in page
    assert f"{one(evaluated, 'toy:power=2', 'near')['toy_gap']:.3f}".replace("-", "−") in page


def test_the_format_is_detected_named_and_read_by_the_workers(
    tmp_path: Path, added: None, local_ray: None, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(f"{i}.png {i % CLASSES} {picture(i).hex()}\n" for i in range(8))
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.toy").write_text(text)
    words = ["extract", "--data", str(tmp_path / "images"), "--model", "support.networks:small", "--json"]
    result = json.loads(say(capsys, *words, "--out", str(tmp_path / "store")))
    assert (result["rows"], result["failures"]) == (8, 0)
    assert Store.open(str(tmp_path / "store")).manifest.data[0].kind == "toy"
    assert "nearest: 'toy'" in refusal(tmp_path / "images", format="toi")
    (tmp_path / "empty").mkdir()
    assert "toy" in refusal(tmp_path / "empty")
