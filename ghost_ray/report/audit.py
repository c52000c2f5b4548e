"""The section of an audit: may GHOST be adopted for this network?"""

from __future__ import annotations

from typing import Any

import numpy as np

from ghost_ray.audit.verdict import PAPER_RATES, verdict
from ghost_ray.report.cells import ALPHAS, DEFECT_EDGES, P_EDGES, Cells, read_cells
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Block, Chart, Grid, Number, Section, Series, Table
from ghost_ray.report.examples import example_charts
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

_WORST, _LEAST = 20, 5
_NAMED = 12
_MAX_POINTS = 2000


def audit_section(result: Result, identity: str, room: float) -> Section:
    """Everything the page shows of an audit, from whatever of its files is there."""
    summary = result.json("summary.json") or {}
    cells = read_cells(result)
    names = result.class_names
    blocks: list[Block] = []
    rate = number(summary.get("rejected_fraction"))
    if rate is None and cells is not None and cells.tests:
        rate = int(cells.rejected.sum()) / cells.tests
    if rate is not None:
        blocks.append(_paper_chart(rate, result.network or "this network", identity))
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


def _verdict(summary: dict[str, Any], cells: Cells | None, rate: float | None) -> str:
    if rate is None:
        return "The audit has no result yet: neither its summary nor its tests can be read."
    said = summary.get("verdict")
    if isinstance(said, str) and said:
        return said
    if cells is None:
        return f"{percent(rate)} of the tests reject normality."
    tested = cells.n[cells.tested.any(axis=1)]
    return verdict(rate, cells.tests, 0.05, "all", float(np.median(tested)))


def _numbers(summary: dict[str, Any], cells: Cells | None, rate: float | None) -> list[Number]:
    tests = summary.get("tests", cells.tests if cells else None)
    rejected = summary.get("rejected", int(cells.rejected.sum()) if cells else None)
    degenerate = summary.get("degenerate", cells.degenerate if cells else None)
    found = [Number(percent(rate), "of tests reject normality", f"{whole(rejected)} of {whole(tests)}, after Holm")]
    if cells is not None and cells.tests:
        median = float(np.nanmedian(cells.W))
        note = f"1 is perfectly normal; 1 % of the tests lie below {np.nanquantile(cells.W, 0.01):.3f}"
        found.append(Number(decimal(median, 4), "median W", note))
    found.append(Number(whole(degenerate), "degenerate cells", "constant or too few samples; not tested, not counted"))
    return found


def _facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    family = {"all": "all tests together", "class": "one family a class"}.get(str(summary.get("family")))
    known = [
        ("Classes", whole(summary.get("classes"))),
        ("Dimensions", whole(summary.get("dimensions"))),
        ("Family-wise error rate α", decimal(summary.get("alpha"), 2)),
        ("Holm's family", family or "–"),
    ]
    return [(name, value) for name, value in known if value != "–"]


def _notes(summary: dict[str, Any]) -> list[str]:
    """Classes of which the audit can say little."""
    sentences = {
        "untested_classes": "could not be tested: fewer than three correctly classified samples",
        "thin_classes": "rest on few samples: only gross departures can be seen",
        "sampled_classes": "were tested on a seeded sample: the p-value’s approximation ends at 5,000 samples",
    }
    notes = []
    for field, sentence in sentences.items():
        classes = [str(entry.get("name")) for entry in summary.get(field) or []]
        if classes:
            more = f" and {len(classes) - _NAMED:,} more" if len(classes) > _NAMED else ""
            notes.append(f"{plural(len(classes), 'class', 'classes')} {sentence}: {', '.join(classes[:_NAMED])}{more}.")
    return notes


def _paper_chart(rate: float, network: str, identity: str) -> Chart:
    rows = sorted(
        [*((f"{name} (paper)", value) for name, value in PAPER_RATES.items()), (network, rate)], key=lambda row: -row[1]
    )
    here = rows.index((network, rate))
    series = []
    for name, style, chosen in (
        ("this audit", "main", [here]),
        ("the paper", "muted", [i for i in range(len(rows)) if i != here]),
    ):
        series.append(
            Series(
                name,
                x=[rows[i][1] for i in chosen],
                y=[rows[i][0] for i in chosen],
                kind="bar",
                style=style,  # type: ignore[arg-type]
                text=[percent(rows[i][1]) for i in chosen],
            )
        )
    return Chart(
        id=f"{identity}-paper",
        title="Beside the paper’s four networks",
        caption="Share of class × dimension tests that reject normality at α = 0.05 after Holm’s correction. GHOST did "
        "worst on DenseNet-121. The rate also grows with the samples a class: compare networks at like n.",
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
        caption="How far from normal the columns are, whatever their number of samples: the further left, the further. "
        "With a thousand samples W = 0.99 already rejects, though the shape is all but Gaussian.",
        says=f"Half of the tests have W above {np.nanmedian(cells.W):.4f}; the lowest W is {np.nanmin(cells.W):.3f}.",
        x=Axis("W", scale="log", range=(float(edges[-1]), float(edges[0])), one_minus=True),
        y=Axis("share of tests", percent=True),
        series=[Series("W", x=edges, y=np.append(shares, shares[-1]), kind="steps")],
    )
    shares = cells.p_counts / cells.tests
    centres = (P_EDGES[1:] + P_EDGES[:-1]) / 2
    p_chart = Chart(
        id=f"{identity}-p",
        title="Distribution of p",
        caption="Before any correction. Were every column normal, all bars would end at the dashed line; what stands "
        "above it on the left are the columns that are not.",
        says=f"{percent(shares[0])} of the tests have p below 0.05; 5 % would if every column were normal.",
        x=Axis("p", range=(0, 1)),
        y=Axis("share of tests", percent=True),
        series=[
            Series("tests", x=centres, y=shares, kind="bar"),
            Series("if all were normal", x=[0, 1], y=[0.05, 0.05], style="reference"),
        ],
    )
    return Grid(f"{identity}-distributions", "How strong and how sure", [w_chart, p_chart])


def _movement(cells: Cells, names: list[str] | None, identity: str) -> Grid:
    rates = cells.holm_below / cells.tests
    strict, lax = (rates[np.flatnonzero(level == ALPHAS)[0]] for level in (0.01, 0.1))
    by_alpha = Chart(
        id=f"{identity}-alpha",
        title="The rate and α",
        caption="Share of rejected tests if α were chosen otherwise. A flat line means that the verdict does not hang "
        "on the choice of α; uncorrected, even normal columns reject as the thin dashed line says.",
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
    kept = np.flatnonzero(np.isfinite(rate))
    if len(kept) > _MAX_POINTS:
        kept = kept[np.linspace(0, len(kept) - 1, _MAX_POINTS).astype(int)]
    n = cells.n[kept]
    by_n = Chart(
        id=f"{identity}-n",
        title="The rate and the number of samples",
        caption="One point a class. Shapiro–Wilk finds ever smaller deviations as n grows: a class high up at small n "
        "is the stronger evidence against normality.",
        says=f"Classes have {whole(n.min())} to {whole(n.max())} correctly classified samples; their rejection rates "
        f"run from {percent(rate[kept].min())} to {percent(rate[kept].max())}.",
        x=Axis("correctly classified samples of the class"),
        y=Axis("share of the class’s tests rejected", percent=True),
        series=[Series("classes", x=n, y=rate[kept], kind="points", labels=[class_name(names, int(k)) for k in kept])],
    )
    return Grid(f"{identity}-movement", "What the rate hangs on", [by_alpha, by_n])


def _worst_tables(cells: Cells, names: list[str] | None, identity: str) -> list[Table]:
    tables = []
    for axis, what, many in ((1, "class", "classes"), (0, "dimension", "dimensions")):
        rate = cells.rates(axis)
        mean = cells.class_means() if axis else cells.dimension_means()
        with np.errstate(all="ignore"):
            lowest = np.nanmin(np.where(np.isnan(cells.W), np.inf, cells.W), axis=axis)
        order = np.lexsort((np.nan_to_num(mean, nan=np.inf), -np.nan_to_num(rate, nan=-1.0)))
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
                caption=f"{whole(rejecting)} of {plural(len(tested), what, many)} have a rejected test; these are the "
                f"{whole(len(rows))} with the largest share, then the lowest mean W.",
                columns=columns,
                rows=rows,
            )
        )
    return tables
