"""No sentence that the page makes contradicts the numbers beside it, whatever these are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.pages import make_page
from support.results import make_audit, make_evaluation, make_model
from support.stores import Toy, write_store

from ghost_ray.cli.show import render
from ghost_ray.config import AuditConfig, ReportConfig
from ghost_ray.jobs import audit
from ghost_ray.metrics import OpenSetScores, oscr_curve
from ghost_ray.report import run
from ghost_ray.report.assemble import assemble
from ghost_ray.report.audit_section import _worst_caption
from ghost_ray.report.discover import find_results
from ghost_ray.report.document import charts_of
from ghost_ray.report.evaluation_verdict import evaluation_verdict
from ghost_ray.report.figure3 import _beside
from ghost_ray.report.numbers import shown_value, told_apart
from ghost_ray.report.plots import _draw
from ghost_ray.report.z_scores import _axis
from ghost_ray.scorers import is_rival, names, title_of

TWENTY = [*names(), *(f"knn:k={k}" for k in range(1, 20 - len(names()) + 1))]
# Few values, so that there are ties, differences too small to be seen, and none at all.
AUOSCR = st.sampled_from([0.2, 0.5, 0.7, 0.7004, 0.70041, 0.9, 0.9 + 1e-12, 1.0, None, float("nan")])


@st.composite
def evaluations(draw: st.DrawFn) -> tuple[dict[tuple[str, str], dict[str, Any]], list[str], list[str]]:
    """Results by method and unknown set: one method to twenty, one set to three."""
    methods = draw(st.lists(st.sampled_from(TWENTY), min_size=1, max_size=20, unique=True))
    sets = ["near", "far", "farther"][: draw(st.integers(1, 3))]
    given = draw(st.sampled_from(["any", "all lead", "none leads", "tie"]))
    variants = draw(st.sets(st.sampled_from(["energy", "knn:k=1"])))
    found = {}
    for method in methods:
        for name in sets:
            value = draw(AUOSCR)
            if given != "any":
                value = {"all lead": 0.9, "none leads": 0.1, "tie": 0.5}[given] if method == "ghost" else 0.5
            found[method, name] = {"auoscr": value}
            # Older evaluations do not say it; of a name alone it cannot be known.
            if method in variants:
                found[method, name]["rival"] = False
    return found, methods, sets


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and np.isfinite(value)]
    return sum(known) / len(known) if len(known) == len(values) else None


@settings(max_examples=200)
@given(evaluations(), st.data())
def test_the_verdict_on_an_evaluation_says_what_the_means_say(evaluation: Any, data: st.DataObject) -> None:
    found, methods, sets = evaluation
    proven = {
        method: data.draw(st.lists(st.sampled_from(["GHOST", "rival", "none"]), min_size=len(sets), max_size=len(sets)))
        for method in methods
        if is_rival(method, found[method, sets[0]])
    }
    text = evaluation_verdict(found, methods, sets, proven)
    means = {method: mean([found[method, name]["auoscr"] for name in sets]) for method in methods}
    known = {method: value for method, value in means.items() if value is not None}
    rivals = {method: value for method, value in known.items() if is_rival(method, found[method, sets[0]])}
    if "ghost" not in known or not rivals:
        assert text == f"{len(methods)} method{'s' * (len(methods) > 1)} measured on {len(sets)} unknown set" + (
            "s." if len(sets) > 1 else "."
        )
        return
    mine, best = known["ghost"], max(rivals.values())
    ahead = [
        all(
            v is None or not np.isfinite(v) or v < found["ghost", name]["auoscr"]
            for v in (found[m, name]["auoscr"] for m in methods if is_rival(m, found[m, name]))
        )
        for name in sets
    ]
    assert text.startswith("GHOST leads: ") == (mine > best and all(ahead))
    assert text.startswith("GHOST has a higher mean than every rival: ") == (mine > best and not all(ahead))
    assert text.startswith("GHOST does not lead: ") == (mine < best)
    assert text.startswith("GHOST ties ") == (mine == best)
    assert ("mean AUOSCR" in text) == (len(sets) > 1)
    numbers = re.match(r".* is ([\d.]+), ([\d.]+) (above|below) the best rival’s \((.*), ([\d.]+)\)\.", text)
    if mine != best:
        ours, difference, side, rival, theirs = numbers.groups()
        assert abs(float(ours) - mine) <= 0.5 * 10.0 ** -len(ours.partition(".")[2]) + 1e-15
        assert float(difference) == pytest.approx(abs(float(ours) - float(theirs)), abs=1e-15)
        assert (float(ours) > float(theirs)) == (side == "above") == (mine > best)
        assert rivals[next(m for m in rivals if title_of(m) == rival)] == best
    if len(sets) > 1:
        shown = "each" if all(ahead) else str(sum(ahead)) if any(ahead) else "none"
        assert f"ahead of every rival on {shown} of {len(sets)} unknown sets" in text
    variants = {m: v for m, v in known.items() if m not in rivals and m != "ghost" and v > mine}
    top = max(variants.values(), default=None)
    assert ("does better still" in text) == (top is not None and top > mine > best)
    assert (" leads (" in text) == (top is not None and top > best >= mine)
    assert ("does better than GHOST" in text) == (top is not None and top <= best)
    rival = max(rivals, key=rivals.__getitem__)
    sure = [outcome for outcome in proven[rival] if outcome != "none"]
    assert ("No paired test" in text) == (not sure)
    if sure and len(sets) > 1:
        assert f"on {len(sure)} of {len(sets)} sets" in text
        assert f"of GHOST on {sure.count('GHOST')}, of {title_of(rival)} on {sure.count('rival')}" in text


@given(st.lists(st.sampled_from([0.1, 0.1001, 0.10012, 0.7, 0.7 + 1e-9, -0.7]), min_size=1, max_size=4))
def test_what_differs_looks_different_and_what_is_the_same_the_same(values: list[float]) -> None:
    shown = told_apart(*values)
    for a, text in zip(values, shown, strict=True):
        assert shown_value(text) == pytest.approx(a, abs=1e-3)
        assert [b == a for b in values] == [other == text for other in shown]


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 20))
def test_the_table_of_the_least_normal_says_what_it_holds(rejecting: int, tested: int, shown: int) -> None:
    assume(rejecting <= tested and shown <= tested)
    text = _worst_caption(rejecting, tested, shown, "class", "classes")
    assert text.startswith("No class has" if rejecting == 0 else f"{rejecting} of {tested} class")
    assert ("share" in text) == (rejecting > 0)
    assert ("all are shown" in text) == (shown == tested)
    assert shown == tested or f"the {shown} least normal" in text


@given(*[st.floats(-5, 50) | st.just(7.0) for _ in range(4)])
def test_the_example_is_told_as_it_is(s: float, other_s: float, gamma: float, other_gamma: float) -> None:
    known, unknown = ({"s": s, "gamma": gamma}, {"s": other_s, "gamma": other_gamma})
    text = _beside(known, unknown)  # type: ignore[arg-type]
    assert ("lies farther" in text, "lies no farther" in text) == (other_s > s, other_s <= s)
    assert ("lower, as it should be" in text) == (other_gamma < gamma)
    assert _beside({"s": None, "gamma": 1.0}, unknown) == ""  # type: ignore[typeddict-item]


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 5)), min_size=2, max_size=40, unique_by=lambda pair: pair[0])
)
def test_every_distance_that_was_counted_is_on_the_axis(bins: list[tuple[float, int]]) -> None:
    edges, counts = np.sort([edge for edge, _ in bins]), np.array([count for _, count in bins])[1:]
    axis = _axis(edges[:-1], edges[1:], counts)
    held = np.flatnonzero(counts)
    assume(len(held))
    assert axis.range is not None
    assert axis.range[1] >= edges[1:][held].max()
    assert axis.range[0] <= edges[1:][held].min()
    assert axis.range[0] <= edges[:-1][held].min() or axis.scale == "log"
    assert axis.scale == "linear" or axis.range[0] > 0


# ---- the page ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 7, 20])
def test_captions_speak_of_the_curves_that_are_drawn(tmp_path: Path, count: int) -> None:
    make_evaluation(tmp_path / "e", methods=tuple(TWENTY[:count]), sets=("near",), knowns=300, classes=4)
    page = make_page(tmp_path / "e")
    drawn = page.data["charts"]["evaluation-near-oscr"]["series"]
    assert len(drawn) == count
    spoken = next(
        tag["aria-label"] for tag in page.attributes("div") if tag.get("data-chart") == "evaluation-near-oscr"
    )
    named = spoken.replace("\u00a0", " ").split("CCR at FPR 10 %: ")[1]
    curves = pq.read_table(tmp_path / "e" / "curves.parquet").to_pandas().query("curve == 'oscr'")
    for method in TWENTY[:count][:6]:
        points = curves[(curves["method"] == method) & (curves["x"] <= 0.1)]
        assert f"{title_of(method)} {points['y'].iloc[-1]:.3f}" in named
    assert (f"({count - 6} more are drawn)" in named) == (count > 6)
    assert len(re.findall(r"\d\.\d{3}", named)) == min(count, 6)
    assert page.text.count("every curve ends at the closed-set accuracy of these") == 2, "top and bottom classes"


@pytest.mark.parametrize(("classes", "dimensions"), [(1, 1), (1, 3), (2, 1), (2, 6)])
def test_an_audit_of_very_little_is_told_in_grammar(tmp_path: Path, classes: int, dimensions: int) -> None:
    columns = make_audit(tmp_path / "audit", classes=classes, dimensions=dimensions)
    tested = len(np.unique(columns["class"][~columns["degenerate"]]))
    make_model(tmp_path / "model", classes=max(classes, 2), dimensions=dimensions)
    text = make_page(tmp_path).text
    assert not re.search(r"\b1 (classes|dimensions|tests|samples|rows|sets|methods)\b", text)
    assert not re.search(r"\b(nan|None|inf)\b", text)
    assert ("Least normal class: " in text, "The one class tested: " in text) == (tested > 1, tested == 1)


def test_the_headline_names_the_network_and_the_folder_it_speaks_of(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "a", network="swin-t", sets=("near",), knowns=200, classes=4)
    one = run(ReportConfig(folders=(str(tmp_path / "a"),), plots=False))["verdict"]
    assert one[0].startswith("swin-t — GHOST ")
    make_evaluation(tmp_path / "b", network="mae-h", sets=("near",), knowns=200, classes=4)
    several = run(ReportConfig(folders=(str(tmp_path),), plots=False))["verdict"]
    assert several[0].startswith(f"swin-t · {tmp_path.name}/a, one of 2 results of this kind here — ")
    text = make_page(tmp_path).text
    assert text.count("GHOST leads") + text.count("GHOST does not lead") == 2, "each verdict once"


def test_terminal_and_page_name_the_same_least_normal_class(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = Toy.make(rng, classes=6, dimensions=12)
    features, label = toy.known(rng, 1500)
    features[label == 4] = toy.centres[4] + np.exp(rng.normal(0, 0.5, (int((label == 4).sum()), 12))) - 1
    # A single column that is far from normal: the lowest mean W, but one rejection.
    features[label == 2, 0] = toy.centres[2, 0] + np.sign(rng.normal(size=int((label == 2).sum())))
    write_store(tmp_path / "store", features, label, toy, class_names=[f"kind {k}" for k in range(6)])
    result = audit.run(AuditConfig(store=str(tmp_path / "store"), out=str(tmp_path / "audit")))
    render("audit", result)
    printed = re.search(r"Least normal classes: \d+ (kind \d) ", capsys.readouterr().out)
    page = make_page(tmp_path / "audit")
    spoken = re.search(r"Least normal class: (kind \d); most normal: (kind \d)\.", page.text)
    rows = page.tables["audit-worst-classes"]
    assert printed[1] == spoken[1] == rows[1][0][0] == "kind 4"
    assert page.data["heat_maps"]["audit-heat-map"]["rows"][0] == "kind 4"
    assert page.data["heat_maps"]["audit-heat-map"]["rows"][-1] == spoken[2]


def test_figures_are_drawn_from_every_score(tmp_path: Path, rng: np.random.Generator) -> None:
    make_evaluation(tmp_path / "e", methods=("ghost", "msp"), sets=("near",), knowns=200, classes=4)
    known, unknown = rng.normal(2, 1, 6000), rng.normal(0, 1, 20_000)
    label = rng.integers(0, 4, 6000)
    (tmp_path / "e" / "scores").mkdir()
    for name, score, labels in (("known", known, label), ("near", unknown, np.full(20_000, -1))):
        table = pa.table({"label": labels, "pred": np.where(labels < 0, 0, labels), "score": score})
        pq.write_table(table, tmp_path / "e" / "scores" / f"ghost__{name}.parquet")
    document = assemble(find_results([str(tmp_path / "e")]), "title")
    charts = {chart.id: chart for chart in charts_of(document.sections[0].blocks)}
    chart = charts["evaluation-near-oscr"]
    ghost, msp = chart.whole_series()
    every = oscr_curve(OpenSetScores(known, np.ones(6000, bool), label, unknown))
    assert ghost.x[ghost.x > 0].min() == 1 / 20_000, "as low as the number of unknowns can tell"
    # Both coordinates only grow, so their sum says how far along the curve a point lies.
    along = np.interp(every.fpr + every.value, ghost.x + ghost.y, ghost.x)
    np.testing.assert_allclose(along, every.fpr, atol=1e-3)
    assert len(chart.series[0].x) <= 300 < len(msp.x) < 1500 < len(ghost.x), "stored ones where there are no scores"
    (axes,) = _draw([chart], 1).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [len(ghost.x), len(msp.x)]
