"""What commands print: plain where nobody looks, within a terminal's width where somebody does, and never markup."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.registries import make_version
from support.results import make_audit, make_evaluation
from support.studies import of_the_paper

from ghost_ray import metrics
from ghost_ray.cli.show import percent, plain, render
from ghost_ray.config import ReportConfig
from ghost_ray.config.refit_settings import RegistryConfig
from ghost_ray.registry.looking import list_versions
from ghost_ray.report import run
from ghost_ray.report.study.lookup import Cells


def on_a_terminal(columns: int, *words: str, **environment: str) -> list[str]:
    """The lines of a command whose output is a terminal of that width."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ghost_ray", *words],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **environment},
    )
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 4096):
            shown += part
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(master)
    assert process.wait(timeout=60) == 0
    return shown.decode().replace("\r", "").splitlines()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shown") / "[bold]results[-]"
    make_audit(root / "audit")
    make_evaluation(root / "evaluation")
    return root


def test_sentences_are_whole_lines_in_a_file(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(ReportConfig(folders=(str(results),), plots=False))
    render("report", result)
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(result["verdict"])] == result["verdict"]
    assert lines[-1].startswith(f"→ {results}/report.html"), "brackets in a name are no markup"
    assert "\x1b" not in "".join(lines)


def test_sentences_end_between_words_on_a_terminal(results: Path) -> None:
    arguments = ("report", str(results), "--no-plots")
    lines = on_a_terminal(60, *arguments)
    sentences = [line for line in lines if not line.startswith("→") and "/" not in line]
    assert len(sentences) > 4
    assert all(len(line) <= 60 for line in sentences)
    joined = " ".join(" ".join(sentences).split())
    assert run(ReportConfig(folders=(str(results),), plots=False))["verdict"][0] in joined
    assert not re.search(r"\x1b\[(3|4|9)\d", "".join(on_a_terminal(80, *arguments, NO_COLOR="1"))), "no colours"


def test_versions_fit_a_terminal_and_ids_stay_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [make_version(str(tmp_path), word, auoscr={"near": 0.7, "far": 0.9}) for word in "ab"]
    render("registry list", list_versions(RegistryConfig(root=str(tmp_path))))
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == made[::-1]
    for line in lines:
        assert len(line) <= 80
        assert line[header.index("AUOSCR") :].startswith("0.8000"), "under its heading, the mean of the sets"


@pytest.mark.parametrize(("text", "shown"), [("[red]x[/]", r"\[red]x\[/]"), ("a\x1b[2Jb\nc", "a [2Jb c")])
def test_names_move_no_cursor_and_colour_nothing(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_shares_look_alike_everywhere() -> None:
    assert (percent(0.0279), percent(1.0), percent(None)) == ("2.79 %", "100.00 %", "–")


def test_what_was_noticed_is_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    said = ["the labels agree with the predictions in 3.0 % of the rows", "column 0 of the features holds the labels"]
    imported = {"rows": 5, "classes": 2, "dimensions": 3, "accuracy": 0.03, "head": False, "store": "s"}
    render("import", {**imported, "unknown_store": None, "unknown_rows": None, "notes": said})
    fitted = {"classes": 2, "dimensions": 3, "rows": 5, "rows_used": 4, "missing": [], "model": "m"}
    nothing = {"thin": {"classes": 0, "smallest": []}, "constant": {"cells": 0, "dimensions_in_every_class": []}}
    render("fit", {**fitted, **nothing, "notes": said})
    noted = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Note: ")]
    assert noted == 2 * [f"Note: {sentence}" for sentence in said]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.,%–]+", text))


def test_no_number_of_a_study_is_cut_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    study = of_the_paper("table-5", ("mae-h", "convnextv2-h"))
    long = "a-network-with-a-name-that-goes-on-for-more-than-forty-letters"
    study["networks"][0]["name"] = long
    for place, cell in enumerate(study["results"]):
        cell["network"] = long if cell["network"] == "mae-h" else cell["network"]
        cell["value"] = 0.1 + place / 7000
    render("study", {"out": "study", "report": "study/report.html", "study": study})
    shown = capsys.readouterr().out
    cells = Cells(study)
    for network in (long, "convnextv2-h"):
        for method in study["methods"]:
            assert f"{cells.mean(network, method, 'auoscr'):.4f}" in _words(shown)
    assert "…" not in shown
    assert max(map(len, shown.splitlines()[:20])) <= 80


def test_no_number_of_a_plan_is_cut_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    roles = ("fit", "known", "unknown.a-set-with-quite-a-long-name")
    counts = {"images": 39_654_321, "bytes": 123_400_000_000, "estimated": True, "requests": 79_348_296}
    rest = {"data": "s3://a-bucket/with/a/folder/of/many/images", "expected": [50_000], "problem": None}
    sets = [{"role": role, **rest, **counts} for role in roles]
    network = {"network": "a-network-with-a-long-name", "model": "torchvision:convnextv2_huge", "given": [], "done": []}
    work = {"extract": list(roles), "images": 39_654_321, "bytes": 123_400_000_000, "requests": 1, "cells": 1234}
    plan = {
        "out": "s",
        "plan": True,
        "methods": ["ghost"],
        "data": sets,
        "networks": [{**network, **work, "problem": None}],
    }
    render("study", {**plan, **counts, "unsized": False})
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert {"39,654,321", "79,348,296", "123.4", "1234"} <= _words(shown)


def test_no_number_of_an_evaluation_is_cut_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["ghost", "msp", "maxlogit", "nnguide:k=10:fraction=1", "energy", "knn", "vim", "rmds"]
    sets = {"near": 10, "a-set-with-a-name-that-goes-on-for-more-than-forty-letters": 20}
    fields = [metric.field for metric in metrics.registered()]
    results = [
        {"method": method, "unknown": name, **dict.fromkeys(fields, 0.1 + (i + 10 * j) / 997)}
        for i, method in enumerate(methods)
        for j, name in enumerate(sets)
    ]
    summary = {"methods": methods, "unknowns": sets, "results": results, "groups": [], "notes": [], "evaluation": "e"}
    render("evaluate", {**summary, "closed_set_accuracy": 0.9, "knowns": 100})
    shown = capsys.readouterr().out
    assert "…" not in shown
    for result in results:
        assert f"{result['auoscr']:.3f}" in _words(shown)
    assert max(len(line) for line in shown.splitlines() if "│" in line or "┃" in line) <= 80
