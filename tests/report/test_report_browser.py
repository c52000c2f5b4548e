"""A real browser opens the page: everything is drawn, nothing is fetched, and people can use it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.drawn import PAIR, number, wrongly_drawn
from support.results import make_audit, make_evaluation, make_large_audit, make_model, make_version, write_json

from ghost_ray.config import ReportConfig
from ghost_ray.report import run

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install ghost-ray[dev]")
CHROMIUM = "/usr/bin/chromium"
NASTY = '<b>tench</b><img src=x onerror="document.title=1">'
MANY = ("ghost", "ghost-gpd", "msp", "maxlogit", "energy", "knn", "nnguide", "react", "scale", "vim", "mds", "rmds")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no {CHROMIUM}: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # Debian's build refuses its sandbox to root, which containers run as; the pages are our own.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    make_audit(root / "audit")
    make_evaluation(root / "evaluation")
    make_model(root / "model")
    return _page(root)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    make_large_audit(root / "audit")
    sets = ("ssb_hard", "ninco", "inaturalist", "textures")
    make_evaluation(root / "evaluation", classes=1000, knowns=10_000, sets=sets, methods=MANY)
    return _page(root)


def _page(root: Path) -> Path:
    run(ReportConfig(folders=(str(root),), plots=False))
    return root / "report.html"


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page, waits until it is drawn, and fails at the end if it complained or asked for anything."""
    contexts, complaints = [], []

    def opened(path: Path, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if not _own(request.url) else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=true]", state="attached", timeout=180_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _own(url: str) -> bool:
    return url.startswith(("data:", "blob:")) or (url.startswith("file:") and url.endswith("report.html"))


@pytest.mark.parametrize("which", ["demo", "imagenet"])
def test_every_chart_shows_its_numbers(which: str, open_page: Any, request: pytest.FixtureRequest) -> None:
    page = open_page(request.getfixturevalue(which))
    assert page.locator("[data-chart]").count() > 25
    assert wrongly_drawn(page) == []


CLOCK = """new MutationObserver(() => {
  for (const mark of ["shown", "ready"]) {
    if (document.documentElement?.dataset[mark]) (window.marks ||= {})[mark] ??= performance.now();
  }
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-shown", "data-ready"] })"""


@pytest.mark.alone
def test_imagenet_page_is_small_and_opens_fast(imagenet: Path, browser: Any) -> None:
    assert imagenet.stat().st_size < 10e6
    measured = []
    for _ in range(3):
        page = browser.new_page()
        page.add_init_script(CLOCK)
        page.goto(imagenet.as_uri())
        page.wait_for_selector("html[data-ready=true]", state="attached", timeout=120_000)
        loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        measured.append({**page.evaluate("marks"), "load": loaded})
        page.close()
    # Milliseconds since the page was asked for, on the reader's clock; about a third of it on a quiet machine.
    assert min(max(m["load"], m["shown"]) for m in measured) < 1500, "open, and all charts in sight drawn"
    assert min(max(m["load"], m["ready"]) for m in measured) < 3000, "every chart drawn, those behind tabs too"


@pytest.mark.parametrize("width", [400, 800, 1200])
@pytest.mark.parametrize("which", ["demo", "imagenet"])
def test_nothing_overflows(which: str, width: int, open_page: Any, request: pytest.FixtureRequest) -> None:
    page = open_page(request.getfixturevalue(which), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate("""() => [...document.querySelectorAll("main *")].filter((element) => {
      const box = element.getBoundingClientRect();
      return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !element.closest(".scroll, .away, svg");
    }).map((element) => element.outerHTML.slice(0, 120))""")
    assert wide == []


CONTRAST = """(selector) => {
  const channel = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const under = (element) => { for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) return colour; } return "rgb(255,255,255)"; };
  const worst = [...document.querySelectorAll(selector)].filter((e) => e.textContent.trim()).map((element) => {
    const style = getComputedStyle(element);
    const [a, b] = [light(element.closest("svg") ? style.fill : style.color), light(under(element))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); });
  return Math.min(...worst);
}"""
TEXTS = ("main p", "figcaption", "td", "thead th", ".chart .tick", ".chart .title", ".legend button", ".note")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(scheme: str, demo: Path, open_page: Any) -> None:
    page = open_page(demo, color_scheme=scheme)
    for texts in TEXTS:
        assert page.evaluate(CONTRAST, texts) >= 4.5, texts
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click(".theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    for texts in TEXTS:
        assert page.evaluate(CONTRAST, texts) >= 4.5, f"{texts} after the switch"


def test_class_table_sorts_and_filters(imagenet: Path, open_page: Any) -> None:
    page = open_page(imagenet)
    table = page.locator(".per-class")

    def column(position: int) -> list[float]:
        cells = table.locator(f"tbody tr td:nth-child({position})")
        return [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]

    assert table.locator("tbody tr").count() == 50
    for position in (2, 3, 4):
        table.locator(f"thead th:nth-child({position}) button").click()
        assert column(position) == sorted(column(position), reverse=True)
        table.locator(f"thead th:nth-child({position}) button").click()
        assert column(position) == sorted(column(position))
    page.fill(".filter", "hammerhead 2")
    names = table.locator("tbody th").all_text_contents()
    assert names
    assert all("hammerhead 2" in name for name in names)
    page.fill(".filter", "no such class")
    assert table.locator("tbody tr").count() == 0
    page.fill(".filter", "")
    page.click(".more")
    assert table.locator("tbody tr").count() == 200
    before = column(4)
    page.select_option(".unknown", "textures")
    assert column(4) != before
    page.select_option(".rival", "knn")
    assert "CCR, KNN" in table.locator("thead").inner_text()


def test_plain_tables_sort(demo: Path, open_page: Any) -> None:
    page = open_page(demo)
    rows = page.locator("#evaluation-metrics tbody tr")
    heading = page.locator("#evaluation-metrics thead th:nth-child(3)")
    heading.locator("button").click()
    values = [float(v) for v in rows.locator("td:nth-child(3)").evaluate_all("c => c.map(x => x.dataset.value)")]
    assert values == sorted(values)
    assert heading.get_attribute("aria-sort") == "ascending"


def test_tabs_switch_the_unknown_set(demo: Path, open_page: Any) -> None:
    page = open_page(demo)
    page.get_by_role("tab", name="far").click()
    chart = page.locator("[data-chart=evaluation-far-oscr]")
    assert chart.is_visible()
    assert not page.locator("[data-chart=evaluation-near-oscr]").is_visible()
    assert chart.evaluate("chart => Math.abs(chart.clientWidth - chart.querySelector('svg').viewBox.baseVal.width)") < 2
    page.get_by_role("tab", name="far").press("ArrowLeft")
    assert page.locator("[data-chart=evaluation-near-oscr]").is_visible()


def test_heat_map_tells_class_and_value(demo: Path, open_page: Any) -> None:
    page = open_page(demo)
    image = page.locator("[data-heat-map]")
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    image.hover(position={"x": box["width"] / 48, "y": box["height"] / 16})
    text = page.locator(".heat-value").inner_text()
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent).heat_maps['audit-heat-map']")
    found = re.fullmatch(r"(.+), dimension (\d+): W ≈ ([\d.]+)", text)
    assert found
    assert found[1] == data["rows"][0]
    assert int(found[2]) == data["columns"][0]
    tests = pq.read_table(demo.parent / "audit" / "normality.parquet").to_pandas()
    least = tests.groupby("class")["rejected"].mean().idxmax()
    (W,) = tests.loc[(tests["class"] == least) & (tests["dimension"] == int(found[2])), "W"]
    assert float(found[3]) == pytest.approx(W, abs=0.02), "the least normal corner"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in which everything that has a name has a hostile one."""
    root = tmp_path_factory.mktemp("hostile") / "<b>folder<b>"
    names = [f"{NASTY}{k}" for k in range(8)]
    make_audit(root / "audit", name=NASTY)
    make_evaluation(root / "evaluation", sets=(NASTY, f"{NASTY}2"), names=names, network=NASTY)
    make_model(root / "model", name=NASTY)
    for kind in ("audit", "model"):
        manifest = json.loads((root / kind / "manifest.json").read_text())
        write_json(root / kind, "manifest.json", {**manifest, "class_names": names})
    return _page(root)


def test_html_in_names_stays_text(hostile: Path, open_page: Any) -> None:
    page = open_page(hostile)
    assert page.title() == f"GHOST report – {NASTY}"
    assert f"{NASTY}0" in page.locator(".per-class tbody th").all_text_contents()
    assert page.get_by_role("tab").first.text_content() == NASTY
    assert NASTY in page.locator("#found").inner_text()
    assert any(NASTY in text for text in page.locator(".tick.y title, .tick.y").all_text_contents())
    assert any(NASTY in text for text in page.locator(".legend button").all_text_contents())
    # What is pointed at is written into the page as well.
    for chart in ("audit-paper", "audit-n"):
        _point_at_a_value(page, chart)
        assert NASTY in page.locator(f"[data-chart={chart}] .chart-note").inner_text()
    page.locator("[data-heat-map]").hover(position={"x": 30, "y": 30})
    assert NASTY in page.locator(".heat-value").inner_text()
    page.fill(".filter", "<b>")
    assert page.locator(".per-class tbody tr").count() == 8
    assert page.locator("main b").count() == 0
    assert page.locator("main img:not([data-heat-map])").count() == 0
    assert page.title() == f"GHOST report – {NASTY}", "no handler ran"


def _point_at_a_value(page: Any, chart: str) -> tuple[float, float]:
    """Moves the mouse onto the first value of a chart's first series; returns where it is drawn."""
    holder = page.locator(f"[data-chart={chart}]")
    holder.scroll_into_view_if_needed()
    path = holder.locator(".series path").first.get_attribute("d")
    x, y = (float(part) for part in re.search(PAIR, path).groups())
    box = holder.locator("svg").bounding_box()
    page.mouse.move(box["x"] + x + 2, box["y"] + y + 2)
    return x, y


def test_pointing_tells_the_value(demo: Path, open_page: Any) -> None:
    page = open_page(demo)
    charts = json.loads(page.locator("#data").text_content())["charts"]
    points = charts["audit-n"]["series"][0]
    _point_at_a_value(page, "audit-n")
    note = page.locator("[data-chart=audit-n] .chart-note")
    name, samples, share = note.locator("strong, span").all_text_contents()
    assert name in points["labels"]
    at = points["labels"].index(name)
    assert number(samples.rpartition(": ")[2]) == points["x"][at]
    assert number(share.rpartition(": ")[2]) == pytest.approx(points["y"][at], abs=1e-4)
    page.mouse.move(0, 0)
    assert note.is_hidden()


def test_dragging_zooms_and_a_name_hides_its_curve(demo: Path, open_page: Any) -> None:
    page = open_page(demo)
    chart = page.locator("[data-chart=evaluation-near-oscr]")
    chart.scroll_into_view_if_needed()
    labels = chart.locator(".tick.x").all_text_contents()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 90, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 240, box["y"] + 200, steps=3)
    page.mouse.up()
    zoomed = [number(text) for text in chart.locator(".tick.x").all_text_contents()]
    assert max(zoomed) < 0.6
    chart.locator(".unzoom").click()
    assert chart.locator(".tick.x").all_text_contents() == labels
    before = chart.locator(".series").count()
    page.locator(".panel:not(.away) .legend button", has_text="MSP").click()
    assert chart.locator(".series").count() == before - 1
    assert page.locator("[data-chart=evaluation-near-roc] .series").count() == before, (
        "four methods and chance, less one"
    )
    page.locator(".panel:not(.away) .legend button", has_text="MSP").press("Enter")
    assert chart.locator(".series").count() == before


def test_prints_with_charts_that_fit(demo: Path, open_page: Any) -> None:
    page = open_page(demo, color_scheme="dark")
    page.evaluate("addEventListener('beforeprint', () => { window.printed = true })")
    pdf = page.pdf(format="A4", print_background=True)
    assert 6 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 30
    assert page.evaluate("window.printed"), "charts are drawn for the sheet's width"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST, ".chart .tick") >= 4.5
    assert page.locator(".panel.away [data-chart] svg").first.is_visible(), "on paper every set is seen"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert wrongly_drawn(page) == []


def test_refit_and_half_finished_pages_open(tmp_path: Path, open_page: Any) -> None:
    make_version(tmp_path / "0002-bbbbbbbbbbbb")
    (tmp_path / "0002-bbbbbbbbbbbb" / "audit" / "manifest.json").unlink()
    (tmp_path / "0002-bbbbbbbbbbbb" / "evaluation" / "metrics.json").unlink()
    page = open_page(_page(tmp_path / "0002-bbbbbbbbbbbb"))
    assert wrongly_drawn(page) == []
    assert page.locator(".state.unfinished").count() == 1
    assert "missing: metrics.json" in page.locator("#found").inner_text()


def test_where_nothing_is_rejected_axes_begin_at_zero(tmp_path: Path, open_page: Any) -> None:
    make_audit(tmp_path / "audit")
    columns = pq.read_table(tmp_path / "audit" / "normality.parquet").to_pydict()
    rows = len(columns["p"])
    calm = {**columns, "rejected": [False] * rows, "p_holm": [1.0] * rows}
    pq.write_table(pa.table(calm), tmp_path / "audit" / "normality.parquet")
    page = open_page(_page(tmp_path))
    assert wrongly_drawn(page) == []
    for chart in ("audit-n", "audit-alpha"):
        labels = page.locator(f"[data-chart={chart}] .tick.y").all_text_contents()
        assert min(map(number, labels)) == 0, chart


def test_a_point_without_a_value_is_not_drawn(tmp_path: Path, open_page: Any) -> None:
    make_evaluation(tmp_path / "evaluation")
    place = _page(tmp_path)
    text = place.read_text()
    kept, changed = re.subn(r'("kind":\s*"points".*?"y":\s*\[)[^,\]]+', r"\1null", text)
    assert changed
    place.write_text(kept)
    assert wrongly_drawn(open_page(place)) == []
