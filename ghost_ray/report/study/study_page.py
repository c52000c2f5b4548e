"""A study as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import MANIFEST, join, read_sealed, remove_tree, write_bytes
from ghost_ray.report.discover import Result, part_of
from ghost_ray.report.document import Block, Cell, Document, Found, Number, Section, Table
from ghost_ray.report.numbers import decimal, decimal_cell, number, percent, whole
from ghost_ray.report.page import render_page
from ghost_ray.report.pictures import galleries
from ghost_ray.report.plots import save_plots
from ghost_ray.report.study.charts import study_charts
from ghost_ray.report.study.glance import AUOSCR, glance_table, numbers, study_facts, verdict
from ghost_ray.report.study.lookup import GHOST, Cells, network_title, title_of, unknown_title
from ghost_ray.report.study.network_curves import NetworkScores, network_blocks
from ghost_ray.report.study.sheets import Panel, Sheet, Text, sheets
from ghost_ray.report.study.study_findings import NetworkFindings, Study

PAGE, PLOTS = "report.html", "plots"


def write_page(folder: str, study: Study, *, plots: bool) -> str:
    """Write the page, and its figures for papers; returns where the page is."""
    document = assemble(folder, study)
    place = join(folder, PAGE)
    write_bytes(place, render_page(document).encode())
    remove_tree(join(folder, PLOTS))  # those of networks or sets that are no longer in the study
    if plots:
        save_plots(document, join(folder, PLOTS))
    return place


def document_of(result: Result) -> Document:
    """The page of a study's folder, from its results.json."""
    study = result.json("results.json", Study)
    try:
        return assemble(result.uri, study)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        problem = f"results.json does not hold a study ({one_line(error, 120)})"
        raise InputError("folders", redact(result.uri), problem, "run the study again") from None


def assemble(folder: str, study: Study) -> Document:
    """The whole page as an object."""
    cells = Cells(study)
    sections = [_study_section(cells)]
    sections += [_network_section(folder, cells, n, f"network-{i + 1}-page") for i, n in enumerate(study["networks"])]
    found = [Found(n["name"], "network", "complete", network=n["model"]) for n in study["networks"]]
    found += [Found(f["network"], "network", "unfinished", f["reason"]) for f in study["failed"]]
    return Document(
        title="GHOST study",
        network=", ".join(map(network_title, study["networks"])),
        verdict=[section.verdict for section in sections[:1]],
        numbers=numbers(cells),
        found=found,
        absent=[],
        sections=sections,
    )


def _study_section(cells: Cells) -> Section:
    study = cells.study
    blocks: list[Block] = [block for block in (glance_table(cells), study_charts(cells)) if block is not None]
    blocks += _tables(study, "")
    notes = [*study["notes"], *(f"{f['network']} could not be finished: {f['reason']}" for f in study["failed"])]
    return Section(
        id="study",
        kind="study",
        title="Study",
        source="results.json",
        verdict=verdict(cells),
        numbers=numbers(cells),
        blocks=blocks,
        facts=study_facts(study),
        notes=notes,
    )


def _network_section(folder: str, cells: Cells, network: NetworkFindings, identity: str) -> Section:
    place = part_of(folder, network["name"])
    scores = NetworkScores(place, network)
    blocks: list[Block] = [*network_blocks(cells, network, scores, identity), *_tables(cells.study, network["name"])]
    method = GHOST if GHOST in cells.methods([network["name"]]) else cells.methods([network["name"]])[0]
    places = {name: at for name in network["unknowns"] if (at := scores.evaluation(method, name)) is not None}
    blocks += galleries(places, method, identity)
    spent = _cost_table(place, network, identity)
    blocks += [spent] if spent is not None else []
    audit = network["audit"]
    return Section(
        id=identity,
        kind="network",
        title=network_title(network),
        source=network["name"],
        verdict=audit["verdict"],
        numbers=[
            Number(
                percent(network["closed_set_accuracy"], 1),
                "closed-set accuracy",
                f"of {whole(network['knowns'])} knowns",
            ),
            Number(
                percent(audit["rejected_fraction"]),
                "of tests reject normality",
                f"{whole(audit['rejected'])} of {whole(audit['tests'])}",
            ),
            Number(
                decimal(cells.mean(network["name"], method, AUOSCR)),
                f"mean AUOSCR of {title_of(method)}",
                "over the unknown sets",
            ),
        ],
        blocks=blocks,
        facts=[
            ("Model", network["model"]),
            ("Classes", whole(network["classes"])),
            ("Dimensions", whole(network["dimensions"])),
            *((f"Unknowns, {unknown_title(name)}", whole(rows)) for name, rows in network["unknowns"].items()),
        ],
        notes=network["notes"],
    )


def _cost_table(place: str, network: NetworkFindings, identity: str) -> Table | None:
    """What each method took, from the manifests of the network's evaluations; the first that has a method counts."""
    found: dict[str, Mapping[str, object]] = {}
    for name, pairs in network["evaluations"].items():
        try:
            spent = read_sealed(join(part_of(place, name), MANIFEST)).get("costs") or {}
        except (OSError, ValueError, AttributeError):
            continue
        found = {method: spent[method] for method, _ in pairs if isinstance(spent.get(method), dict)} | found
    if not found:
        return None
    rows = [
        [
            Cell(title_of(method)),
            decimal_cell(cost.get("fit_seconds"), 2),
            decimal_cell(cost.get("score_seconds"), 2),
            decimal_cell((number(cost.get("fit_bytes")) or 0) / 1e6, 3),
            decimal_cell((number(cost.get("score_bytes")) or 0) / 1e6, 3),
        ]
        for method, cost in found.items()
    ]
    return Table(
        id=f"{identity}-costs",
        title="What each method costs",
        caption="Seconds in the method’s own code, summed over the workers, without reading the rows, which all "
        "methods share. Megabytes of the fitted state, which scoring holds in memory, and of the score files.",
        columns=["Method", "Fit, seconds", "Score, seconds", "Fit, MB", "Scores, MB"],
        rows=rows,
    )


def _tables(study: Study, network: str) -> list[Table]:
    """The tables of one network, or those of several networks."""
    return [
        _table(sheet, panel, place)
        for sheet in sheets(study)
        for place, panel in enumerate(sheet.panels)
        if panel.network == network
    ]


def _table(sheet: Sheet, panel: Panel, place: int) -> Table:
    """A panel of a sheet as the page shows it."""
    metric = panel.title.partition(": ")[2]  # the section says which network
    title = f"{sheet.title}: {metric}" if metric else sheet.title
    over = [name for name, count in panel.groups for _ in range(count)] or [""] * len(panel.columns)
    legend = " ".join(metric.heading for metric in panel.legend)
    return Table(
        id=f"study-{sheet.name}" + (f"-{place + 1}" if len(sheet.panels) > 1 else ""),
        title=title,
        caption=sheet.caption + (f" From top to bottom in each cell: {legend}." if legend else ""),
        columns=[
            *panel.corners,
            *(f"{group} {column}".strip() for group, column in zip(over, panel.columns, strict=True)),
        ],
        rows=[[*(Cell(name) for name in names), *(_cell(list(box)) for box in boxes)] for names, boxes in panel.rows],
        sorts=not panel.block,
    )


def _cell(box: list[Text]) -> Cell:
    lines = [Cell(f"{part.arrow} {part.text}".strip(), _value(part.text), part.bold) for part in box]
    return lines[0] if len(lines) == 1 else Cell("", lines[0].value, lines=lines)


def _value(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
