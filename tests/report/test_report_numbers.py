"""The numbers on the page are the numbers in the files."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.pages import Page, make_page
from support.results import make_audit, make_evaluation, make_model, make_version

from ghost_ray.jobs.audit.verdict import PAPER_RATES
from ghost_ray.model import Model
from ghost_ray.report.cells import ALPHAS, DEFECT_EDGES, P_EDGES
from ghost_ray.report.document import plain
from ghost_ray.report.numbers import decimal, percent, short, signed, small

METRICS = {"auoscr": 2, "auroc": 3, "fpr95": 4, "f_at_c95": 5, "ccr_cv": 6, "openood_fpr95": 7, "ccr_mean": 8}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray], dict[str, Any], Page]:
    root = tmp_path_factory.mktemp("both")
    columns, metrics = make_audit(root / "audit"), make_evaluation(root / "evaluation")
    return root, columns, metrics, make_page(root)


def test_audit_charts_hold_the_numbers_of_normality_parquet(both: Any) -> None:
    _, columns, _, page = both
    charts = page.data["charts"]
    tested = ~columns["degenerate"]
    W, p, holm = (columns[name][tested] for name in ("W", "p", "p_holm"))
    rate = columns["rejected"].sum() / tested.sum()
    mine, paper = charts["audit-paper"]["series"]
    assert mine["x"] == plain([rate])
    assert dict(zip(paper["y"], paper["x"], strict=True)) == {f"{name} (paper)": r for name, r in PAPER_RATES.items()}
    assert charts["audit-p"]["series"][0]["y"] == plain(np.histogram(p, P_EDGES)[0] / len(p))
    shown = charts["audit-w"]["series"][0]
    counts = np.histogram(1 - W, DEFECT_EDGES)[0] / len(W)
    first = int(np.argmin(np.abs(DEFECT_EDGES - shown["x"][0])))
    np.testing.assert_allclose(shown["y"][:-1], counts[first : first + len(shown["y"]) - 1], rtol=1e-6)
    assert sum(shown["y"][:-1]) == pytest.approx(1)
    after, before = (series["y"] for series in charts["audit-alpha"]["series"][:2])
    np.testing.assert_allclose(after, [(holm <= a).mean() for a in ALPHAS], rtol=1e-6)
    np.testing.assert_allclose(before, [(p <= a).mean() for a in ALPHAS], rtol=1e-6)
    points = charts["audit-n"]["series"][0]
    for k in range(8):
        here = tested & (columns["class"] == k)
        assert points["y"][k] == pytest.approx(columns["rejected"][here].mean(), rel=1e-6)
        assert points["x"][k] == columns["n"][here][0]


def test_heat_map_colours_are_w_in_sorted_order(both: Any) -> None:
    _, columns, _, page = both
    map_ = page.data["heat_maps"]["audit-heat-map"]
    W = np.where(columns["degenerate"], np.nan, columns["W"]).reshape(8, 24)
    source = next(tag["src"] for tag in page.attributes("img") if tag.get("data-heat-map"))
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))))
    assert pixels.shape == W.shape
    rates = columns["rejected"].reshape(8, 24).sum(axis=1) / (~np.isnan(W)).sum(axis=1)
    rows = np.lexsort((np.nanmean(W, axis=1), -rates))
    sorted_W = W[np.ix_(rows, np.array(map_["columns"]))]
    absent = np.isnan(sorted_W)
    np.testing.assert_array_equal(pixels == len(map_["values"]), absent)
    decoded = np.array([*map_["values"], np.nan])[pixels]
    # Colours run over all but the outermost half percent, in equal steps of log(1 − W).
    inside = ~absent & (sorted_W > map_["values"][-1]) & (sorted_W < map_["values"][0])
    step = np.log((1 - map_["values"][1]) / (1 - map_["values"][0]))
    assert inside.sum() > 150
    difference = np.log(1 - decoded[inside]) - np.log(1 - sorted_W[inside])
    assert np.abs(difference).max() <= 0.51 * step


@pytest.mark.parametrize(("axis", "many"), [("class", "classes"), ("dimension", "dimensions")])
def test_worst_tables_hold_the_shares_and_w_of_normality_parquet(both: Any, axis: str, many: str) -> None:
    _, columns, _, page = both
    rows = page.tables[f"audit-worst-{many}"][1:]
    shares = [float(row[1][1]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    names = json.loads((both[0] / "audit" / "manifest.json").read_text())["class_names"]
    tested = ~columns["degenerate"]
    everything = [columns["rejected"][tested & (columns[axis] == i)].mean() for i in np.unique(columns[axis])]
    assert shares == pytest.approx(sorted(everything, reverse=True)[: len(shares)])
    for row in rows:
        index = names.index(row[0][0]) if axis == "class" else int(row[0][0])
        here = tested & (columns[axis] == index)
        assert float(row[1][1]) == pytest.approx(columns["rejected"][here].mean())
        assert row[1][0] == percent(columns["rejected"][here].mean())
        assert float(row[2][1]) == pytest.approx(columns["W"][here].mean(), rel=1e-6)
        assert float(row[3][1]) == pytest.approx(columns["W"][here].min(), rel=1e-6)


def test_example_histogram_and_quantiles_are_the_sample(both: Any) -> None:
    root, _, _, page = both
    example = pq.read_table(root / "audit" / "examples.parquet").to_pylist()[0]
    points = page.data["charts"]["audit-example-0-qq"]["series"][1]
    observed = (np.array(example["values"]) - example["mean"]) / example["std"]
    np.testing.assert_allclose(points["y"], observed, rtol=1e-5, atol=1e-6)
    assert points["x"] == sorted(points["x"])
    assert points["x"][0] == pytest.approx(-points["x"][-1])
    bars, curve = page.data["charts"]["audit-example-0-histogram"]["series"]
    width = bars["x"][1] - bars["x"][0]
    assert sum(bars["y"]) * width == pytest.approx(1, rel=1e-5), "a density"
    counts = np.array(bars["y"]) * width * len(example["values"])
    np.testing.assert_allclose(counts, np.histogram(example["values"], len(counts))[0], atol=1e-4)
    highest = int(np.argmax(curve["y"]))
    assert curve["x"][highest] == pytest.approx(example["mean"], abs=curve["x"][1] - curve["x"][0])
    assert curve["y"][highest] == pytest.approx(1 / (example["std"] * np.sqrt(2 * np.pi)), rel=0.01)


def test_many_values_are_thinned_to_points_of_the_sample_with_its_tails(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit", classes=3, dimensions=3, samples=4000)
    page = make_page(tmp_path / "audit")
    example = pq.read_table(tmp_path / "audit" / "examples.parquet").to_pylist()[0]
    points = page.data["charts"]["audit-example-0-qq"]["series"][1]
    observed = plain((np.array(example["values"]) - example["mean"]) / example["std"])
    assert 100 < len(points["y"]) <= 400 < len(observed)
    assert set(points["y"]) <= set(observed)
    assert [points["y"][0], points["y"][-1]] == [observed[0], observed[-1]]


def test_tables_hold_the_numbers_of_metrics_json(both: Any) -> None:
    _, _, metrics, page = both
    rows = page.tables["evaluation-metrics"][1:]
    assert len(rows) == len(metrics["results"])
    for row, result in zip(rows, metrics["results"], strict=True):
        assert row[0][0] == result["unknown"]
        for field, column in METRICS.items():
            assert float(row[column][1]) == pytest.approx(result[field], rel=1e-9), field
            assert row[column][0] == f"{result[field]:.3f}"
    assert f"{100 * metrics['closed_set_accuracy']:.1f} %" in page.text


def test_curves_are_points_of_curves_parquet(both: Any) -> None:
    root, _, _, page = both
    table = pq.read_table(root / "evaluation" / "curves.parquet").to_pylist()
    for unknown in ("near", "far"):
        for curve in ("oscr", "oscr_top", "oscr_bottom", "roc", "v"):
            chart = page.data["charts"][f"evaluation-{unknown}-{curve}"]
            for series, method in zip(chart["series"], ("ghost", "msp", "maxlogit", "energy"), strict=False):
                points = {
                    (plain(row["x"]), plain(row["y"]))
                    for row in table
                    if (row["unknown"], row["curve"], row["method"]) == (unknown, curve, method)
                }
                shown = list(zip(series["x"], series["y"], strict=True))
                assert len(shown) >= min(len(points), 200)
                assert set(shown) <= points
    assert page.data["charts"]["evaluation-near-oscr-log"]["series_of"] == "evaluation-near-oscr"


def test_class_table_holds_per_class_parquet(both: Any) -> None:
    root, _, _, page = both
    shown = page.data["class_tables"]["evaluation-classes"]
    for row in pq.read_table(root / "evaluation" / "per_class.parquet").to_pylist():
        at = shown["names"].index(row["name"])
        measures = shown["measures"][row["unknown"]][row["method"]]
        assert shown["count"][at] == row["n"]
        assert measures["ccr"][at] == pytest.approx(row["ccr"], abs=1e-5)
        assert measures["f_at_c95"][at] == pytest.approx(row["f_at_c95"], abs=1e-5)
    assert shown["methods"][0] == ["ghost", "GHOST"]


def test_z_scores_are_shares_of_each_set(both: Any) -> None:
    root, _, _, page = both
    table = pq.read_table(root / "evaluation" / "zscores.parquet").to_pylist()
    for series in page.data["charts"]["evaluation-z"]["series"]:
        counts = np.array([row["count"] for row in table if row["set"] == series["name"]])
        shares = [share or 0 for share in series["y"][:-1]]
        np.testing.assert_allclose(shares, counts / counts.sum(), rtol=1e-6)


def test_significance_holds_the_tests_of_significance_json(both: Any) -> None:
    root, _, _, page = both
    tests = json.loads((root / "evaluation" / "significance.json").read_text())["tests"]
    header, *rows = page.tables["evaluation-significance"]
    names = {"MSP": "msp", "MaxLogit": "maxlogit", "Energy": "energy"}
    shown = {}
    for row in rows:
        for (title, _), (text, value) in zip(header[2:], row[2:], strict=True):
            shown[row[0][0], names[row[1][0]], title.lower()] = (text, float(value))
    assert len(shown) == len(tests)
    for test in tests:
        text, difference = shown[test["unknown"], test["method"], test["metric"]]
        assert difference == pytest.approx(test["difference"])
        assert text.endswith(f"p {small(test['p_bonferroni'])}")
        assert ("no difference" in text) != test["significant"]
        if test["significant"]:
            lower_wins = test["metric"] == "fpr95"
            assert ("GHOST better" in text) == ((test["difference"] < 0) != lower_wins)


def test_figure_3_is_the_example_of_the_evaluation(both: Any) -> None:
    root, _, _, page = both
    example = json.loads((root / "evaluation" / "example.json").read_text())
    known, unknown = page.data["charts"]["evaluation-figure3-z"]["series"]
    assert known["y"] == plain(example["known"]["z"])
    assert unknown["y"] == plain(example["unknown"]["z"])
    assert known["labels"] == [f"dimension {d}" for d in example["dimensions"]]
    two, one, mean = page.data["charts"]["evaluation-figure3-gaussians"]["series"]
    assert mean["y"] == plain(example["mean"])
    for band, width in ((two, 2), (one, 1)):
        spread = (np.array(band["y"]) - np.array(band["low"])) / 2
        np.testing.assert_allclose(spread, width * np.array(example["std"]), rtol=1e-4, atol=1e-6)


def test_model_shows_the_gaussians_of_its_file(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    page = make_page(tmp_path / "model")
    gaussians = Model.open(str(tmp_path / "model")).gaussians
    two, _, mean = page.data["charts"]["model-gaussians"]["series"]
    order = [int(label.split()[-1]) for label in mean["labels"]]
    k = next(k for k in range(8) if np.allclose(gaussians.mean[k, order], mean["y"], rtol=1e-5))
    spread = (np.array(two["y"]) - np.array(two["low"])) / 4
    np.testing.assert_allclose(spread, gaussians.std[k, order], rtol=1e-4)
    counts = page.data["charts"]["model-samples"]["series"][0]["y"]
    assert counts == sorted(gaussians.count.tolist(), reverse=True)


def test_drift_table_holds_drift_json(tmp_path: Path) -> None:
    folder = tmp_path / "0002-bbbbbbbbbbbb"
    drift = make_version(folder)
    page = make_page(folder)
    rows = {row[0][0]: row for row in page.tables["version-drift"][1:]}
    assert [float(rows["AUOSCR, near"][i][1]) for i in (1, 2)] == drift["auoscr"]["near"]
    assert [cell[0] for cell in rows["Closed-set accuracy"][1:]] == ["80.00 %", "75.00 %", "−5.00 points"]
    assert [cell[0] for cell in rows["Correctly classified training samples"][1:]] == ["900", "1,000", "+100"]
    assert page.data["charts"]["version-shift"]["series"][0]["x"] == [0.2, 0.3, 0.4]


def test_top_of_the_page_holds_the_numbers_of_the_files(both: Any) -> None:
    _, columns, metrics, page = both
    top = page.text[: page.text.index("What is here", page.text.index("Light / dark"))]
    ghost = [result for result in metrics["results"] if result["method"] == "ghost"]
    rivals = [result for result in metrics["results"] if result["method"] != "ghost"]
    mean = np.mean([result["auoscr"] for result in ghost])
    best = max(
        np.mean([r["auoscr"] for r in rivals if r["method"] == method]) for method in {r["method"] for r in rivals}
    )
    for shown in (
        percent(columns["rejected"].sum() / (~columns["degenerate"]).sum()),
        percent(metrics["closed_set_accuracy"], 1),
        decimal(mean),
        f"{decimal(mean - best)} above the best rival",
        f"{columns['rejected'].sum()} of {(~columns['degenerate']).sum()}, after Holm",
    ):
        assert shown in top, shown


def test_best_values_are_bold_in_the_papers_table(both: Any) -> None:
    root, _, metrics, _ = both
    html = (root / "page.html").read_text()
    table = html[html.index('id="evaluation-paper"') : html.index('id="evaluation-metrics"')]
    near = [result for result in metrics["results"] if result["unknown"] == "near"]
    bold = re.findall(r'class="line best">(.) ([\d.]+)<', table)
    for sign, field, best in (("↑", "auoscr", max), ("↑", "auroc", max), ("↓", "fpr95", min)):
        assert (sign, f"{best(result[field] for result in near):.3f}") in bold


# ---- numbers as people read them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (percent(0.0279), "2.79 %"),
        (percent(0), "0.00 %"),
        (percent(1e-6), "0.0001 %"),
        (percent(float("nan")), "–"),
        (percent(np.float32(0.5), 0), "50 %"),
        (small(2.4e-7), "2.4e−7"),
        (short(-1.2345), "−1.23"),
        (decimal(-0.5, 1), "−0.5"),
        (signed(-0.0124), "−0.012"),
    ],
)
def test_numbers_in_words(shown: str, expected: str) -> None:
    assert shown == expected


def test_the_colour_bar_of_the_heat_map_has_the_colours_of_its_cells(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit")
    page = make_page(tmp_path)
    (bar,) = [tag["style"] for tag in page.attributes("div") if tag.get("class") == "heat-bar"]
    colours = [[int(part) for part in found.split()] for found in re.findall(r"rgb\((.*?)\)", bar)]
    shown = page.data["heat_maps"]["audit-heat-map"]
    palette = shown["palette"][: len(shown["values"])][::-1]
    assert (colours[0], colours[-1]) == (palette[0], palette[-1]), "from the least normal to the most"
    for place, colour in enumerate(colours):
        at = place * (len(palette) - 1) / (len(colours) - 1)
        assert abs(palette.index(colour) - at) <= 0.5


def test_where_a_rival_is_better_it_is_marked_as_where_ghost_is(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "e")
    content = json.loads((tmp_path / "e" / "significance.json").read_text())
    for place, test in enumerate(test for test in content["tests"] if test["metric"] == "auroc"):
        test |= {"difference": 0.1 if place % 2 else -0.1, "significant": True}
    (tmp_path / "e" / "significance.json").write_text(json.dumps(content))
    make_page(tmp_path)
    page = (tmp_path / "page.html").read_text()
    for word in ("GHOST better", "GHOST worse"):
        classes = re.findall(rf'class="([^"]*)">[^<]*{word}<', page)
        assert classes
        assert set(classes) == {"line best"}, word
