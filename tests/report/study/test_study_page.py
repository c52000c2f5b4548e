"""The page of a study: a browser draws it, nothing leaves it, and its sentences hold for any numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import Page
from support.studies import of_the_paper
from support.study_folders import write_study

from ghost_ray.report.study.glance import duels, verdict
from ghost_ray.report.study.lookup import Cells
from ghost_ray.report.study.study_page import write_page

FOUR = ("swin-t", "densenet-121", "mae-h", "convnextv2-h")
EIGHT = ("21k-p-easy", "21k-p-hard", "ninco", "openimage-o", "inaturalist", "places", "sun", "textures")
METHODS = ("ghost", "msp", "maxlogit", "nnguide", "energy", "scale", "react", "knn")
CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    study = write_study(folder, FOUR[:2], EIGHT[:2], METHODS[:3], rows=150)
    return Path(write_page(str(folder), study, plots=False))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of the paper's size: 4 networks × 8 sets × 8 methods."""
    folder = tmp_path_factory.mktemp("large")
    study = write_study(folder, FOUR, EIGHT, METHODS, rows=2000)
    return Path(write_page(str(folder), study, plots=False))


def test_the_page_shows_cells_curves_and_pictures(small: Path) -> None:
    text = small.read_text(encoding="utf-8")
    page = Page(text)
    glance = page.tables["study-glance"]
    assert [row[0][0].strip() for row in glance[1:]] == ["Swin-T", "DenseNet-121"]
    assert len(glance[0]) == 3
    charts = page.data["charts"]
    assert {"study-audit-gain", "study-accuracy", "network-1-page-1-teaser", "network-2-page-2-v-log"} <= charts.keys()
    teaser = charts["network-1-page-1-teaser"]["series"]
    assert len(teaser) == 9  # three methods, each for all, the top and the bottom classes
    assert all(re.search(r": 0\.\d{3}$", series["name"]) for series in teaser)
    assert charts["network-1-page-1-teaser-log"]["x"]["range"][0] == pytest.approx(1 / 150, rel=1e-6)
    shots = [image for image in page.attributes("img") if str(image.get("src")).startswith("data:image/jpeg")]
    assert len(shots) == 2 * (8 + 2 * 8 * 2)
    assert "<i>class</i>" not in text


@given(
    ghost=st.lists(st.one_of(st.none(), st.sampled_from([0.2, 0.5, 0.5001, 0.9])), min_size=4, max_size=4),
    rival=st.lists(st.one_of(st.none(), st.sampled_from([0.2, 0.5, 0.5001, 0.9])), min_size=4, max_size=4),
    proven=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_the_verdict_counts_what_the_cells_say(
    ghost: list[float | None], rival: list[float | None], proven: list[bool]
) -> None:
    study = of_the_paper("table-1", ("mae-h", "convnextv2-h"))
    places = [(n, u) for n in ("mae-h", "convnextv2-h") for u in ("ninco", "openimage-o")]
    for network in study["networks"]:
        network["unknowns"] = {"ninco": 10, "openimage-o": 10}
    study["unknowns"], study["methods"] = ["ninco", "openimage-o"], ["ghost", "msp"]
    study["results"] = [
        {"network": n, "unknown": u, "method": method, "metric": "auoscr", "value": value, "std": None}
        for method, values in (("ghost", ghost), ("msp", rival))
        for (n, u), value in zip(places, values, strict=True)
    ]
    study["tests"] = [
        {"network": n, "unknown": u, "method": "msp", "metric": "auoscr", "significant": sure}  # type: ignore[typeddict-item]
        for (n, u), sure in zip(places, proven, strict=True)
    ]
    cells = Cells(study)
    both = [(g, r, p) for g, r, p in zip(ghost, rival, proven, strict=True) if g is not None and r is not None]
    said = verdict(cells)
    assert len(duels(cells)) == len(both)
    if not both:
        assert said == "2 methods measured on 2 networks and 2 unknown sets."
        return
    ahead = sum(g > r for g, r, _ in both)
    assert f"than every rival in {ahead} of {len(both)} case" in said
    assert f"significant in {sum(g > r and p for g, r, p in both)}" in said
    lost = sum(g < r and p for g, r, p in both)
    assert (f"its deficit in {lost}" in said) == bool(lost)
    means = {n: [g for (name, _), g in zip(places, ghost, strict=True) if name == n] for n in ("mae-h", "convnextv2-h")}
    whole = {n: sum(v for v in values if v is not None) / 2 for n, values in means.items() if None not in values}
    differ = len({f"{value:.3f}" for value in whole.values()}) == 2
    assert ("The highest mean AUOSCR of GHOST" in said) == differ


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install ghost-ray[dev]")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def _wait(page: Any, condition: str) -> None:
    """Until something is true; the page's policy forbids the evaluation that Playwright's own waiting rests on."""
    for _ in range(1200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(200)
    pytest.fail(condition)


@pytest.mark.slow
@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no {CHROMIUM}: apt-get install chromium")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 420)])
def test_a_browser_draws_four_networks_and_nothing_leaves_the_page(
    browser: Any, large: Path, scheme: str, width: int
) -> None:
    assert large.stat().st_size < 10e6
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on(
        "request",
        lambda request: problems.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
    )
    page.goto(large.as_uri())
    charts = page.locator(".chart")
    assert charts.count() == 2 + 4 * 8 * 5
    _wait(page, "document.querySelectorAll('.chart svg').length === document.querySelectorAll('.chart').length")
    assert page.locator(".chart svg .series path").count() >= 4 * 8 * (2 * 12 + 3 * 8)
    shots = page.locator(".shot img")
    assert shots.count() == 4 * (8 + 8 * 8 * 2)
    shots.first.scroll_into_view_if_needed()
    _wait(page, "document.querySelector('.shot img').naturalWidth > 0")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    context.close()
