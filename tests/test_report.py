"""The page says what the files say, whatever the files are."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from results import make_audit, make_evaluation, make_model, make_version, write_json

from ghost_ray.config import ReportConfig
from ghost_ray.errors import InputError
from ghost_ray.report import run
from ghost_ray.report.assemble import assemble
from ghost_ray.report.cells import ALPHAS, DEFECT_EDGES, P_EDGES
from ghost_ray.report.discover import find_results
from ghost_ray.report.document import plain
from ghost_ray.report.html import render_page, safe_json
from ghost_ray.report.numbers import percent, signed, small

NASTY = "</script><img src=x onerror=alert(1)>&\"'<b>bold</b>"
METRICS = {"auoscr": 2, "auroc": 3, "fpr95": 4, "f_at_c95": 5, "ccr_cv": 6, "openood_fpr95": 7, "ccr_mean": 8}


class Page(HTMLParser):
    """A page taken apart: its tags, its text, its scripts, its tables."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self._inside = ""
        self._figure = ""
        self._cell = False
        self.feed(html)
        self.data: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag in ("script", "style"):
            self._inside = tag
        if tag == "script":
            self.scripts.append("")
        if tag == "figure":
            self._figure = attributes.get("id") or ""
            self.tables[self._figure] = []
        if tag == "tr" and self._figure:
            self.tables[self._figure].append([])
        self._cell = self._cell or tag in ("td", "th")
        if tag in ("td", "th") and self._figure:
            self.tables[self._figure][-1].append(("", attributes.get("data-value")))

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside
        self._figure = "" if tag == "figure" else self._figure
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data
            rows = self.tables.get(self._figure)
            if rows and rows[-1] and self._cell:
                rows[-1][-1] = (rows[-1][-1][0] + data, rows[-1][-1][1])

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make_page(*folders: Path, **options: Any) -> Page:
    out = folders[0] / "page.html"
    result = run(ReportConfig(folders=tuple(map(str, folders)), out=str(out), **{"plots": False, **options}))
    html = out.read_text(encoding="utf-8")
    assert result["bytes"] == out.stat().st_size
    return Page(html)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray], dict[str, Any], Page]:
    root = tmp_path_factory.mktemp("both")
    columns, metrics = make_audit(root / "audit"), make_evaluation(root / "evaluation")
    return root, columns, metrics, make_page(root)


# ---- the numbers are the files' ----------------------------------------------------------------------------------


def test_audit_charts_hold_the_numbers_of_normality_parquet(both: Any) -> None:
    _, columns, _, page = both
    charts = page.data["charts"]
    tested = ~columns["degenerate"]
    W, p, holm = (columns[name][tested] for name in ("W", "p", "p_holm"))
    rate = columns["rejected"].sum() / tested.sum()
    mine = next(series for series in charts["audit-paper"]["series"] if series["name"] == "this audit")
    assert mine["x"] == plain([rate])
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
    rows = np.argsort(np.nanmean(W, axis=1))
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


def test_worst_tables_are_ordered_by_rejections(both: Any) -> None:
    _, columns, _, page = both
    rows = page.tables["audit-worst-dimensions"][1:]
    shares = [float(row[1][1]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    tested = ~columns["degenerate"] & (columns["dimension"] == int(rows[0][0][0].split()[-1]))
    assert shares[0] == pytest.approx(columns["rejected"][tested].mean())
    assert float(rows[0][3][1]) == pytest.approx(columns["W"][tested].min(), rel=1e-6)


def test_example_histogram_and_quantiles_are_the_sample(both: Any) -> None:
    root, _, _, page = both
    example = pq.read_table(root / "audit" / "examples.parquet").to_pylist()[0]
    points = page.data["charts"]["audit-example-0-qq"]["series"][1]
    observed = (np.array(example["values"]) - example["mean"]) / example["std"]
    np.testing.assert_allclose(points["y"], observed, rtol=1e-5, atol=1e-6)
    assert points["x"] == sorted(points["x"])
    assert points["x"][0] == pytest.approx(-points["x"][-1])


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


def test_best_values_are_bold_in_the_papers_table(both: Any) -> None:
    root, _, metrics, _ = both
    html = (root / "page.html").read_text()
    table = html[html.index('id="evaluation-paper"') : html.index('id="evaluation-metrics"')]
    near = [result for result in metrics["results"] if result["unknown"] == "near"]
    bold = re.findall(r'class="line best">(.) ([\d.]+)<', table)
    for sign, field, best in (("↑", "auoscr", max), ("↑", "auroc", max), ("↓", "fpr95", min)):
        assert (sign, f"{best(result[field] for result in near):.3f}") in bold


# ---- what is there and what is missing ---------------------------------------------------------------------------


def test_audit_alone_says_what_is_missing(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit")
    page = make_page(tmp_path / "audit")
    assert "No evaluation here" in page.text
    assert "tests reject normality" in page.text
    assert {tag["data-kind"] for tag in page.attributes("section") if "data-kind" in tag} == {"audit"}


def test_evaluation_alone_and_default_place(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "evaluation")
    result = run(ReportConfig(folders=(str(tmp_path / "evaluation"),), plots=False))
    page = Page((tmp_path / "evaluation" / "report.html").read_text())
    assert result["sections"] == [{"kind": "evaluation", "folder": "evaluation"}]
    assert "No audit here" in page.text
    assert page.text.count("AUOSCR of GHOST") == 1, "one section: what stands at the top is not said again"


def test_model_names_classes_without_gaussian(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    page = make_page(tmp_path / "model")
    assert "1 class has no Gaussian" in page.text
    assert "kite" in page.text
    bands = page.data["charts"]["model-gaussians"]["series"]
    assert bands[2]["y"] == sorted(bands[2]["y"])


def test_refit_shows_drift_and_gates(tmp_path: Path) -> None:
    folder = tmp_path / "0002-bbbbbbbbbbbb"
    drift = make_version(folder)
    page = make_page(folder)
    rows = {row[0][0]: row for row in page.tables["version-drift"][1:]}
    assert [float(rows["AUOSCR, near"][i][1]) for i in (1, 2)] == drift["auoscr"]["near"]
    assert float(rows["Closed-set accuracy"][3][1]) == pytest.approx(-0.05)
    assert "It did not pass: accuracy fell by 0.05." in page.text
    assert "Since 0001-aaaaaaaaaaaa weights changed." in page.text
    assert page.data["charts"]["version-shift"]["series"][0]["x"] == [0.2, 0.3, 0.4]
    assert next(tag["data-kind"] for tag in page.attributes("section") if "data-kind" in tag) == "version"


def test_first_version_has_nothing_to_compare(tmp_path: Path) -> None:
    make_version(tmp_path / "0001-aaaaaaaaaaaa", previous=None)
    assert "The first version" in make_page(tmp_path / "0001-aaaaaaaaaaaa").text


def test_of_a_registry_the_serving_version_is_shown(tmp_path: Path) -> None:
    for version in ("0001-aaaaaaaaaaaa", "0002-bbbbbbbbbbbb"):
        make_version(tmp_path / "versions" / version)
    move = {"version": "0001-aaaaaaaaaaaa", "previous": None, "at": "2031-05-04T10:11:12+00:00", "by": "refit"}
    write_json(tmp_path, "current.json", {"version": "0001-aaaaaaaaaaaa", "history": [move]})
    result = run(ReportConfig(folders=(str(tmp_path),), plots=False))
    assert {section["folder"].split("/")[2] for section in result["sections"]} == {"0001-aaaaaaaaaaaa"}


@pytest.mark.parametrize("gone", ["manifest.json", "summary.json", "normality.parquet", "examples.parquet"])
def test_half_finished_audit_is_shown_as_far_as_it_goes(tmp_path: Path, gone: str) -> None:
    make_audit(tmp_path / "audit")
    (tmp_path / "audit" / gone).unlink()
    page = make_page(tmp_path / "audit")
    assert ("unfinished" in page.text) == (gone == "manifest.json")
    assert f"not there: {gone}" in page.text or gone == "manifest.json"
    assert "reject normality" in page.text


@pytest.mark.parametrize(
    "gone", ["manifest.json", "metrics.json", "significance.json", "curves.parquet", "per_class.parquet"]
)
def test_half_finished_evaluation_is_shown_as_far_as_it_goes(tmp_path: Path, gone: str) -> None:
    make_evaluation(tmp_path / "evaluation")
    (tmp_path / "evaluation" / gone).unlink()
    page = make_page(tmp_path / "evaluation")
    assert "no manifest.json" in page.text if gone == "manifest.json" else f"not there: {gone}" in page.text
    assert ("evaluation-near-oscr" in page.data["charts"]) == (gone != "curves.parquet")


def test_staging_folder_is_named_as_unfinished(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit")
    (tmp_path / ".evaluation.partial" / "scratch").mkdir(parents=True)
    result = run(ReportConfig(folders=(str(tmp_path),), plots=False))
    assert result["unfinished"] == [f"{tmp_path.name}/evaluation"]
    assert "still running" in Page((tmp_path / "report.html").read_text()).text


def test_folder_without_any_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match="holds no result"):
        run(ReportConfig(folders=(str(tmp_path),)))
    with pytest.raises(InputError, match="is not a folder"):
        run(ReportConfig(folders=(str(tmp_path / "nowhere"),)))
    assert list(tmp_path.iterdir()) == [tmp_path / "photos"]


def test_existing_page_is_kept_where_asked(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    (tmp_path / "page.html").write_text("mine")
    config = ReportConfig(folders=(str(tmp_path),), out=str(tmp_path / "page.html"), overwrite=False)
    with pytest.raises(InputError, match="exists already"):
        run(config)
    assert (tmp_path / "page.html").read_text() == "mine"


# ---- damaged and hostile input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["summary.json", "normality.parquet", "examples.parquet", "manifest.json"])
def test_damaged_audit_file_is_named(tmp_path: Path, file: str) -> None:
    make_audit(tmp_path / "audit")
    whole = (tmp_path / "audit" / file).read_bytes()
    (tmp_path / "audit" / file).write_bytes(whole[: len(whole) // 2])
    page = make_page(tmp_path / "audit")
    assert "damaged" in page.text
    assert file in page.text


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=st.sampled_from(["metrics", "significance", "example"]), data=st.data())
def test_any_json_gives_a_page(both: Any, tmp_path_factory: pytest.TempPathFactory, file: str, data: Any) -> None:
    root = tmp_path_factory.mktemp("any")
    shutil.copytree(both[0] / "evaluation", root / "evaluation")
    where = root / "evaluation" / f"{file}.json"
    content = json.loads(where.read_text())
    content[data.draw(st.sampled_from(sorted(content)))] = data.draw(_JSON)
    where.write_text(json.dumps(content))
    page = render_page(assemble(find_results([str(root)]), "any"))
    assert f"{root.name}/evaluation" in page


def test_html_in_names_is_shown_as_text(tmp_path: Path) -> None:
    root = tmp_path / "<i>results<i>"
    make_audit(root / "audit", name=NASTY)
    names = [NASTY, *(f"<u>{k}</u>" for k in range(7))]
    make_evaluation(root / "evaluation", sets=(NASTY, "<s>far</s>"), names=names, network=NASTY)
    for folder in ("audit",):
        manifest = json.loads((root / folder / "manifest.json").read_text())
        write_json(root / folder, "manifest.json", {**manifest, "class_names": names})
    page = make_page(root, title=NASTY)
    allowed = {"img": "data-heat-map"}
    for tag, attributes in page.tags:
        assert tag not in ("b", "u", "i", "s") or attributes == {}, tag
        assert not any(name.startswith("on") for name in attributes), attributes
        if tag in allowed:
            assert allowed[tag] in attributes
    assert sum(tag == "b" for tag, _ in page.tags) == 0
    assert sum(tag == "u" for tag, _ in page.tags) == 0
    assert page.text.count(NASTY) > 10
    assert len(page.scripts) == 3
    assert NASTY in page.data["class_tables"]["evaluation-classes"]["names"]


def test_page_policy_allows_its_own_scripts_and_no_request(both: Any) -> None:
    page = both[3]
    policy = next(tag["content"] for tag in page.attributes("meta") if tag.get("http-equiv"))
    for script in page.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), attributes


def test_every_chart_has_words(both: Any) -> None:
    page = both[3]
    drawn = {tag["data-chart"]: tag for tag in page.attributes("div") if "data-chart" in tag}
    assert drawn.keys() == page.data["charts"].keys()
    for tag in drawn.values():
        assert tag["role"] == "img"
        assert re.search(r"\d", tag["aria-label"]), "the key numbers, in words"
    identities = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(identities) == len(set(identities))
    targets = {tag["href"][1:] for tag in page.attributes("a")}
    assert targets <= set(identities)


@given(st.text())
def test_safe_json_never_ends_its_script(text: str) -> None:
    made = safe_json({"name": text})
    assert "<" not in made
    assert json.loads(made) == {"name": text}


# ---- figures for papers ------------------------------------------------------------------------------------------


def test_plots_are_written_beside_the_page_and_do_not_change(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit", classes=4, dimensions=6)
    manifest = json.loads((tmp_path / "audit" / "manifest.json").read_text())
    write_json(tmp_path / "audit", "manifest.json", {**manifest, "class_names": ["$x^$", "学校", "<b>", "plain"]})
    config = ReportConfig(folders=(str(tmp_path),), out=str(tmp_path / "shown" / "page.html"))
    names = run(config)["plots"]
    folder = tmp_path / "shown" / "plots"
    assert sorted(names) == sorted(file.name for file in folder.iterdir())
    stems = {name.rpartition(".")[0] for name in names}
    assert stems == {f"audit-{n}" for n in ("paper", "heat-map", "distributions", "movement", "examples")}
    first = {name: (folder / name).read_bytes() for name in names}
    starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert all(content.startswith(starts[name[-3:]]) for name, content in first.items())
    assert "ResNet-56" in first["audit-paper.svg"].decode()
    run(config)
    assert {name: (folder / name).read_bytes() for name in names} == first


# ---- numbers as people read them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (percent(0.0279), "2.79 %"),
        (percent(0), "0.00 %"),
        (percent(1e-6), "0.0001 %"),
        (percent(float("nan")), "–"),
        (percent(np.float32(0.5), 0), "50 %"),
        (small(2.4e-7), "2.4e-07"),
        (signed(-0.0124), "−0.012"),
    ],
)
def test_numbers_in_words(shown: str, expected: str) -> None:
    assert shown == expected
