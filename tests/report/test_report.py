"""The page says what is there and what is missing, and shows whatever the files say as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.pages import Page, make_page
from support.results import make_audit, make_evaluation, make_model, make_version, write_json

from ghost_ray.config import ReportConfig
from ghost_ray.errors import InputError
from ghost_ray.report import run
from ghost_ray.report.assemble import assemble
from ghost_ray.report.discover import find_results
from ghost_ray.report.page import render_page, safe_json

NASTY = "</script><img src=x onerror=alert(1)>&\"'<b>bold</b>"
MAKERS = {"audit": make_audit, "evaluation": make_evaluation, "model": make_model}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    root = tmp_path_factory.mktemp("both")
    make_audit(root / "audit")
    make_evaluation(root / "evaluation")
    return root, make_page(root)


# ---- what is there and what is missing ---------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [("audit",), ("evaluation",), ("model",), ("audit", "evaluation"), tuple(MAKERS)])
def test_page_lists_what_is_there_and_says_how_to_make_what_is_not(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        MAKERS[kind](tmp_path / kind)
    result = run(ReportConfig(folders=(str(tmp_path),), plots=False))
    page = Page((tmp_path / "report.html").read_text())
    rows = [[text.strip() for text, _ in row] for row in page.tables["found"][1:]]
    assert [row[:3] for row in rows] == [[f"{tmp_path.name}/{kind}", kind, "complete"] for kind in sorted(kinds)]
    assert [tag["data-kind"] for tag in page.attributes("section") if "data-kind" in tag] == list(kinds)
    assert result["unfinished"] == []
    absent = [kind for kind in MAKERS if kind not in kinds]
    for kind, command in (("audit", "audit"), ("evaluation", "evaluate"), ("model", "fit")):
        assert (f"No {kind} here. Make one with ghost-ray {command} " in page.text) == (kind in absent), kind
    assert [sentence.split()[1] for sentence in result["missing"]] == absent


def test_one_section_does_not_repeat_the_top(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "evaluation")
    run(ReportConfig(folders=(str(tmp_path / "evaluation"),), plots=False))
    page = Page((tmp_path / "evaluation" / "report.html").read_text())
    assert page.text.count("AUOSCR of GHOST") == 1


def test_a_variant_of_ghost_is_no_rival(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "evaluation", methods=("ghost", "ghost-gpd", "msp"))
    verdict = run(ReportConfig(folders=(str(tmp_path),), plots=False))["verdict"][0]
    assert "the best rival’s (MSP" in verdict


def test_model_names_classes_without_gaussian(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    page = make_page(tmp_path / "model")
    assert "1 class has no Gaussian" in page.text
    assert "kite" in page.text
    bands = page.data["charts"]["model-gaussians"]["series"]
    assert bands[2]["y"] == sorted(bands[2]["y"])


def test_refit_shows_drift_and_gates(tmp_path: Path) -> None:
    folder = tmp_path / "0002-bbbbbbbbbbbb"
    make_version(folder)
    page = make_page(folder)
    assert "It did not pass: accuracy fell by 0.05." in page.text
    assert "Since 0001-aaaaaaaaaaaa weights changed." in page.text
    assert "✕ refused" in page.text
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


# What each file gives the page; without it the rest is still there.
PARTS = {
    ("audit", "summary.json"): set(),
    ("audit", "normality.parquet"): {"audit-heat-map", "audit-distributions", "audit-movement", "audit-worst-classes"},
    ("audit", "examples.parquet"): {"audit-examples"},
    ("evaluation", "metrics.json"): {"evaluation-paper", "evaluation-metrics"},
    ("evaluation", "significance.json"): {"evaluation-significance"},
    ("evaluation", "curves.parquet"): {"evaluation-curves"},
    ("evaluation", "per_class.parquet"): {"evaluation-classes"},
    ("evaluation", "zscores.parquet"): {"evaluation-z-scores"},
}
ALL_PARTS = {part for parts in PARTS.values() for part in parts}


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.parametrize(("kind", "file"), PARTS)
def test_without_a_file_its_part_is_missing_and_named(tmp_path: Path, kind: str, file: str, damage: str) -> None:
    MAKERS[kind](tmp_path / kind)
    whole = (tmp_path / kind / file).read_bytes()
    (tmp_path / kind / file).unlink()
    if damage == "cut":
        (tmp_path / kind / file).write_bytes(whole[: len(whole) // 2])
    page = make_page(tmp_path / kind)
    (row,) = page.tables["found"][1:]
    state = row[2][0].strip()
    if damage == "gone":
        assert state.startswith("complete")
        assert f"missing: {file}" in state
    else:
        assert state.startswith("damaged")
        assert file in state
    shown = {attributes.get("id") for _, attributes in page.tags}
    expected = {part for part in ALL_PARTS if part.startswith(kind)} - PARTS[kind, file]
    assert {part for part in ALL_PARTS if part in shown} == expected


@pytest.mark.parametrize("kind", MAKERS)
def test_without_a_manifest_a_result_is_unfinished(tmp_path: Path, kind: str) -> None:
    MAKERS[kind](tmp_path / kind)
    (tmp_path / kind / "manifest.json").unlink()
    result = run(ReportConfig(folders=(str(tmp_path / kind),), plots=False))
    page = Page((tmp_path / kind / "report.html").read_text())
    assert page.tables["found"][1][2][0].strip().startswith("unfinished")
    assert "the job that writes it was stopped or is still running" in page.text
    assert result["unfinished"] == [kind]


def test_an_evaluation_without_metrics_shows_no_empty_number(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "evaluation")
    (tmp_path / "evaluation" / "metrics.json").unlink()
    page = make_page(tmp_path / "evaluation")
    assert "its metrics.json is missing or cannot be read" in page.text
    assert "of – knowns" not in page.text


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


def test_damaged_manifest_is_named(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit")
    (tmp_path / "audit" / "manifest.json").write_text('{"format": "gho')
    page = make_page(tmp_path / "audit")
    assert page.tables["found"][1][2][0].strip().startswith("damaged")
    assert "manifest.json" in page.tables["found"][1][2][0]


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
    names = [NASTY, *(f"<u>{k}</u>" for k in range(7))]
    make_audit(root / "audit", name=NASTY)
    make_evaluation(root / "evaluation", sets=(NASTY, "<s>far</s>"), names=names, network=NASTY)
    make_model(root / "model", name=NASTY)
    for folder in ("audit", "model"):
        manifest = json.loads((root / folder / "manifest.json").read_text())
        write_json(root / folder, "manifest.json", {**manifest, "class_names": names})
    drift = make_version(root / "<tt>0002")
    write_json(root / "<tt>0002", "drift.json", {**drift, "previous": NASTY, "classes_gained": [NASTY]})
    page = make_page(root, title=NASTY)
    own = {"a", "aside", "body", "br", "button", "code", "dd", "div", "dl", "dt", "figcaption", "figure", "footer"}
    own |= {"h1", "h2", "h3", "h4", "head", "header", "html", "img", "input", "label", "li", "main", "meta", "nav"}
    own |= {"noscript", "ol", "output", "p", "script", "section", "select", "span", "strong", "style", "table"}
    own |= {"tbody", "td", "th", "thead", "title", "tr", "ul"}
    assert {tag for tag, _ in page.tags} <= own | {"i"}
    assert all(attributes == {} for tag, attributes in page.tags if tag == "i"), "the legend's square alone"
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), attributes
        assert tag != "img" or "data-heat-map" in attributes
    # Title, networks, sets, classes, folders and versions: all there, as they were written.
    assert page.text.count(NASTY) > 30
    for word in ("<i>results<i>", "<s>far</s>", "<tt>0002", "<u>3</u>"):
        assert word in page.text, word
    assert len(page.scripts) == 2
    assert any(NASTY in table["names"] for table in page.data["class_tables"].values())


def test_page_policy_allows_its_own_scripts_and_no_request(both: Any) -> None:
    page = both[1]
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
    page = both[1]
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


def test_names_with_control_characters_leave_figures_valid_and_the_page_in_order(tmp_path: Path) -> None:
    make_audit(tmp_path / "audit", classes=4, dimensions=6)
    manifest = json.loads((tmp_path / "audit" / "manifest.json").read_text())
    names = ["esc\x1b[31m", "right\u202eleft", "c1\x9b31m", "nul\x00"]
    write_json(tmp_path / "audit", "manifest.json", {**manifest, "class_names": names})
    run(ReportConfig(folders=(str(tmp_path),), out=str(tmp_path / "shown" / "page.html")))
    figures = sorted((tmp_path / "shown" / "plots").glob("*.svg"))
    assert any("esc\ufffd[31m" in "".join(ElementTree.parse(figure).getroot().itertext()) for figure in figures)
    page = (tmp_path / "shown" / "page.html").read_text(encoding="utf-8")
    assert "right\ufffdleft" in page
    assert not set("\x00\x1b\x9b\u202e") & set(page)


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


def test_what_jobs_noticed_stands_with_their_results(tmp_path: Path) -> None:
    said = "the labels agree with the predictions in 3 % of the rows"
    make_model(tmp_path / "model")
    model = json.loads((tmp_path / "model" / "manifest.json").read_text())
    write_json(tmp_path / "model", "manifest.json", {**model, "notes": [f"model: {said}"]})
    store = {**model, "kind": "store", "notes": [f"store: {said}"]}
    write_json(tmp_path / "store", "manifest.json", store)
    page = make_page(tmp_path)
    assert page.text.count(f"model: {said}") == page.text.count(f"store: {said}") == 1
    assert any(f"store: {said}" in text for row in page.tables["found"] for text, _ in row)
