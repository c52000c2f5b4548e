"""The section of an audit: how normal are the features of this network?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghost_ray.jobs.audit.audit_summary import AuditSummary
from ghost_ray.jobs.audit.verdict import PAPER_CAVEATS, PAPER_RATES, verdict
from ghost_ray.report.cells import ALPHAS, DEFECT_EDGES, P_EDGES, Cells, read_cells
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Block, Chart, Grid, Number, Section, Series, Style, Table
from ghost_ray.report.example_columns import example_charts
from ghost_ray.report.heatmap import heat_map
from ghost_ray.report.numbers import (
    class_name,
    decimal,
    decimal_cell,
    number,
    percent,
    percent_cell,
    plural,
    text_cell,
    whole,
    whole_cell,
)
from ghost_ray.store import ClassCount

_WORST, _LEAST = 20, 5
_NAMED = 12
_MAX_POINTS = 2000


def audit_section(result: Result, identity: str, room: float) -> Section:
    """Everything the page shows of an audit, from the files that exist."""
    summary = result.json("summary.json", AuditSummary)
    cells = read_cells(result)
    names = result.class_names
    blocks: list[Block] = []
    rate = number(summary.get("rejected_fraction"))
    if rate is None and cells is not None and cells.tests:
        rate = int(cells.rejected.sum()) / cells.tests
    if rate is not None:
        blocks.append(_paper_chart(rate, result.network or "this network", number(summary.get("alpha")), identity))
    if cells is not None and cells.tests:
        blocks.append(heat_map(cells, names, identity, room))
        blocks.append(_histograms(cells, identity))
        blocks.append(_movement(cells, names, identity))
        blocks.extend(_worst_tables(cells, names, identity))
    examples = example_charts(result, identity)
    if examples:
        blocks.append(examples)
    return Section(
        id=identity,
        kind="audit",
        title="Normality audit",
        source=result.name,
        verdict=_verdict(summary, cells, rate),
        numbers=_numbers(summary, cells, rate),
        blocks=blocks,
        facts=_facts(summary),
        notes=_notes(summary),
    )


def _verdict(summary: AuditSummary, cells: Cells | None, rate: float | None) -> str:
    if rate is None:
        return "The audit has no result yet: neither its summary nor its tests can be read."
    said = summary.get("verdict")
    if isinstance(said, str) and said:
        return said
    if cells is None:
        return f"Normality is rejected in {percent(rate)} of the tests."
    alpha, family = number(summary.get("alpha")), summary.get("family")
    if alpha is None or family not in ("all", "class"):  # without the summary, α is unknown
        return f"Normality is rejected in {percent(rate)} of {plural(cells.tests, 'test')}."
    return verdict(rate, alpha, family, cells.n, cells.tested.sum(axis=1), float(np.nanmedian(cells.W)))


def _numbers(summary: AuditSummary, cells: Cells | None, rate: float | None) -> list[Number]:
    tests = summary.get("tests", cells.tests if cells else None)
    rejected = summary.get("rejected", int(cells.rejected.sum()) if cells else None)
    degenerate = summary.get("degenerate", cells.degenerate if cells else None)
    found = [Number(percent(rate), "of tests reject normality", f"{whole(rejected)} of {whole(tests)}, after Holm")]
    if cells is not None and cells.tests:
        median = float(np.nanmedian(cells.W))
        note = f"1 is perfectly normal; the lowest is {np.nanmin(cells.W):.3f}"
        found.append(Number(decimal(median, 4), "median W", note))
    found.append(Number(whole(degenerate), "degenerate cells", "constant or too few samples; not tested, not counted"))
    return found


def _facts(summary: AuditSummary) -> list[tuple[str, str]]:
    family = {"all": "all tests together", "class": "one family per class"}.get(str(summary.get("family")))
    known = [
        ("Classes", whole(summary.get("classes"))),
        ("Dimensions", whole(summary.get("dimensions"))),
        ("Family-wise error rate α", decimal(summary.get("alpha"), 2)),
        ("Holm's family", family or "–"),
    ]
    return [(name, value) for name, value in known if value != "–"]


def _notes(summary: AuditSummary) -> list[str]:
    """Notes on classes for which the audit has little to say."""
    kinds: list[tuple[str, str, Sequence[ClassCount] | None]] = [
        ("could not be", "tested, with fewer than three correctly classified samples", summary.get("untested_classes")),
        ("has|have", "few samples, so that only large deviations can be detected", summary.get("thin_classes")),
        ("was|were", "tested on a random sample, since p is approximated", summary.get("sampled_classes")),
    ]
    notes = []
    for verb, what, entries in kinds:
        classes = [str(entry.get("name")) for entry in entries or []]
        if classes:
            one, _, several = verb.partition("|")
            says = one if len(classes) == 1 else several or one
            more = f" and {len(classes) - _NAMED:,} more" if len(classes) > _NAMED else ""
            named = f"{', '.join(classes[:_NAMED])}{more}"
            notes.append(f"{plural(len(classes), 'class', 'classes')} {says} {what}: {named}.")
    return notes


def _paper_chart(rate: float, network: str, alpha: float | None, identity: str) -> Chart:
    rows = sorted(
        [*((f"{name} (paper)", value) for name, value in PAPER_RATES.items()), (network, rate)], key=lambda row: -row[1]
    )
    here = rows.index((network, rate))
    drawn: list[tuple[str, Style, list[int]]] = [
        ("this audit", "main", [here]),
        ("the paper", "muted", [i for i in range(len(rows)) if i != here]),
    ]
    series = []
    for name, style, chosen in drawn:
        series.append(
            Series(
                name,
                x=[rows[i][1] for i in chosen],
                y=[rows[i][0] for i in chosen],
                kind="bar",
                style=style,
                text=[percent(rows[i][1]) for i in chosen],
            )
        )
    return Chart(
        id=f"{identity}-paper",
        title="Compared with the paper’s four networks",
        caption="Share of class × dimension tests that reject normality after Holm’s correction, the paper’s at "
        + ("α = 0.05" if alpha is None or alpha == 0.05 else f"α = 0.05, this one at α = {alpha:g}")
        + ". GHOST did worst on DenseNet-121. The rate grows with the number of samples per class: compare networks at "
        "similar n. " + " ".join(PAPER_CAVEATS),
        says=f"Here {percent(rate)}. In the paper "
        + ", ".join(f"{name} {percent(value)}" for name, value in PAPER_RATES.items())
        + ".",
        x=Axis("tests that reject normality", percent=True),
        y=Axis("", scale="category", order=[name for name, _ in rows]),
        series=series,
        horizontal=True,
        height=270,
    )


def _histograms(cells: Cells, identity: str) -> Grid:
    defect = cells.defect_counts / cells.tests
    used = np.flatnonzero(cells.defect_counts)
    first, last = max(used[0] - 1, 0), min(used[-1] + 2, len(defect))
    edges, shares = DEFECT_EDGES[first : last + 1], defect[first:last]
    w_chart = Chart(
        id=f"{identity}-w",
        title="Distribution of W",
        caption="W is 1 for a normal column; those on the left are the least normal. With many samples even a W close "
        "to 1 rejects, though the column is almost Gaussian.",
        says=f"The median of W is {np.nanmedian(cells.W):.4f}; the lowest W is {np.nanmin(cells.W):.4f}.",
        x=Axis("W", scale="log", range=(float(edges[-1]), float(edges[0])), one_minus=True),
        y=Axis("share of tests", percent=True),
        series=[Series("W", x=edges, y=np.append(shares, shares[-1]), kind="steps")],
    )
    shares = cells.p_counts / cells.tests
    centres = (P_EDGES[1:] + P_EDGES[:-1]) / 2
    p_chart = Chart(
        id=f"{identity}-p",
        title="Distribution of p",
        caption="Before any correction. If every column were normal, all bars would end near the dashed line. The "
        "excess above it on the left comes from columns that are not normal.",
        says=f"{percent(shares[0])} of the tests have p below 0.05; about 5 % would if every column were normal.",
        x=Axis("p", range=(0, 1)),
        y=Axis("share of tests", percent=True),
        series=[
            Series("tests", x=centres, y=shares, kind="bar"),
            Series("if all were normal", x=[0, 1], y=[0.05, 0.05], style="reference"),
        ],
    )
    return Grid(f"{identity}-distributions", "How large and how certain", [w_chart, p_chart])


def _movement(cells: Cells, names: list[str] | None, identity: str) -> Grid:
    rates = cells.holm_below / cells.tests
    strict, lax = (rates[np.flatnonzero(level == ALPHAS)[0]] for level in (0.01, 0.1))
    by_alpha = Chart(
        id=f"{identity}-alpha",
        title="The rate and α",
        caption="Share of tests that would be rejected for other choices of α, after Holm’s correction and without it. "
        "Where a line is flat, the choice of α matters little. The thin dashed line is the uncorrected share if "
        "all columns were normal.",
        says=f"At α = 0.01 {percent(strict)} of the tests would reject, at α = 0.1 {percent(lax)}.",
        x=Axis("α", scale="log"),
        y=Axis("share of tests rejected", percent=True),
        series=[
            Series("after Holm", x=ALPHAS, y=rates, style="main"),
            Series("uncorrected", x=ALPHAS, y=cells.below / cells.tests, style=1),
            Series("uncorrected, all normal", x=ALPHAS, y=ALPHAS, style="reference"),
        ],
    )
    rate = cells.rates(axis=1)
    kept = tested = np.flatnonzero(np.isfinite(rate))
    if len(tested) > _MAX_POINTS:
        kept = tested[np.linspace(0, len(tested) - 1, _MAX_POINTS).astype(int)]
    n = cells.n[tested]
    by_n = Chart(
        id=f"{identity}-n",
        title="The rate and the number of samples",
        caption=f"One point per class{_some(len(kept), len(tested))}. As n grows, Shapiro–Wilk detects ever smaller "
        "deviations, so a high rate at small n is stronger evidence against normality.",
        says=f"{_span('Samples tested per class', whole(n.min()), whole(n.max()))}; "
        f"{_span('rejection rates', percent(rate[tested].min()), percent(rate[tested].max()))}.",
        x=Axis("samples of the class that were tested"),
        y=Axis("share of the class’s tests rejected", percent=True),
        series=[
            Series(
                "classes",
                x=cells.n[kept],
                y=rate[kept],
                kind="points",
                labels=[class_name(names, int(k)) for k in kept],
            )
        ],
    )
    return Grid(f"{identity}-movement", "What the rate depends on", [by_alpha, by_n])


def _some(shown: int, all_: int) -> str:
    return "" if shown == all_ else f", {shown:,} of {all_:,} classes"


def _span(what: str, low: str, high: str) -> str:
    return f"{what}: {low}" if low == high else f"{what}: {low} to {high}"


def _worst_tables(cells: Cells, names: list[str] | None, identity: str) -> list[Table]:
    tables = []
    for axis, what, many in ((1, "class", "classes"), (0, "dimension", "dimensions")):
        rate = cells.rates(axis)
        mean = cells.class_means() if axis else cells.dimension_means()
        with np.errstate(all="ignore"):
            lowest = np.nanmin(np.where(np.isnan(cells.W), np.inf, cells.W), axis=axis)
        order = cells.least_normal_first(axis)
        rows = []
        tested = order[np.isfinite(rate[order])]
        rejecting = int((rate[tested] > 0).sum())
        for i in tested[: min(_WORST, max(rejecting, _LEAST))].tolist():
            name = class_name(names, i) if axis else str(i)
            row = [text_cell(name), percent_cell(rate[i]), decimal_cell(mean[i], 4), decimal_cell(lowest[i], 4)]
            rows.append([*row, whole_cell(cells.n[i])] if axis else row)
        columns = [what, "rejected", "mean W", "lowest W", *(["samples"] if axis else [])]
        tables.append(
            Table(
                id=f"{identity}-worst-{many}",
                title=f"Least normal {many}",
                caption=_worst_caption(rejecting, len(tested), len(rows), what, many),
                columns=columns,
                rows=rows,
            )
        )
    return tables


def _worst_caption(rejecting: int, tested: int, shown: int, what: str, many: str) -> str:
    """What a table of the least normal holds, for any number of them."""
    if rejecting == 0:
        begins, order = f"No {what} has a rejected test", "by their mean W, the lowest first"
    else:
        begins = (
            f"{whole(rejecting)} of {plural(tested, what, many)} {'has' if rejecting == 1 else 'have'} a rejected test"
        )
        order = "by their share of rejected tests, the largest first, then by their mean W"
    held = "all are shown" if shown == tested else f"the {whole(shown)} least normal are shown"
    return f"{begins}; {held}, {order}."
