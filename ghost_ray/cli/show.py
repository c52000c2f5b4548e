"""Results as people read them on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from ghost_ray.errors import one_line

if TYPE_CHECKING:  # the jobs import Ray and torch, which would make every message wait
    from ghost_ray.jobs.evaluate.findings import EvaluateResult
    from ghost_ray.jobs.extract.job import ExtractResult
    from ghost_ray.jobs.importing.import_job import ImportResult
    from ghost_ray.jobs.score import ScoreResult
    from ghost_ray.report import ReportResult

Shown = TypeVar("Shown")
_RENDERERS: dict[str, Callable[[Any, Console], None]] = {}


def renders(command: str) -> Callable[[Callable[[Shown, Console], None]], Callable[[Shown, Console], None]]:
    """Register the function that shows a command's result."""

    def register(function: Callable[[Shown, Console], None]) -> Callable[[Shown, Console], None]:
        _RENDERERS[command] = function
        return function

    return register


def plain(value: object) -> str:
    """What files and options say, as text that moves no cursor and colours nothing."""
    from rich.markup import escape

    return escape(one_line(value, 1000))


def print_notes(notes: list[str], console: Console) -> None:
    """What a reader of the result should know, one line each."""
    for note in notes:
        console.print(f"Note: {plain(note)}")


def print_numbers(corner: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]], console: Console) -> None:
    """A table of numbers, which are never cut: where it is too wide it is split, and names take several lines."""
    from rich.table import Table
    from rich.text import Text

    lengths = [Text.from_markup(cell).cell_len for cells in rows.values() for cell in cells]
    # A heading breaks between its words, a number does not.
    wide = max([*lengths, *(len(word) for column in columns for word in column.split())], default=1)
    first = min(max(map(len, (corner, *rows))), max(console.width - wide - 7, 1))
    step = max(1, (console.width - first - 4) // (wide + 3))
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        table = Table()
        table.add_column(corner, overflow="fold", max_width=first)
        for column in columns[part]:
            table.add_column(plain(column), justify="right", min_width=wide)
        for name, cells in rows.items():
            table.add_row(plain(name), *cells[part])
        console.print(table)


def percent(value: float | None) -> str:
    """0.0279 → 2.79 %."""
    return "–" if value is None else f"{100 * value:.2f} %"


def render(command: str, result: Mapping[str, object]) -> None:
    """Show a result on stdout."""
    from ghost_ray.cli import show_demo, show_fit, show_registry, show_study  # noqa: F401 - they register their renderers

    # Lines are wrapped for people; a file or another program gets each sentence on one line.
    _RENDERERS[command](result, Console(highlight=False, soft_wrap=not sys.stdout.isatty()))


@renders("import")
def _import(result: ImportResult, console: Console) -> None:
    accuracy = "" if result["accuracy"] is None else f", closed-set accuracy {percent(result['accuracy'])}"
    head = "with" if result["head"] else "without"
    console.print(
        f"{result['rows']:,} rows (K={result['classes']}, D={result['dimensions']}, {head} a linear head{accuracy}) "
        f"→ [bold]{plain(result['store'])}[/]"
    )
    if result["unknown_store"]:
        console.print(f"{result['unknown_rows']:,} rows without a class → [bold]{plain(result['unknown_store'])}[/]")
    print_notes(result["notes"], console)


@renders("evaluate")
def _evaluate(result: EvaluateResult, console: Console) -> None:
    from ghost_ray.jobs.evaluate.result_tables import grids

    sets = ", ".join(f"{name} {rows:,}" for name, rows in result["unknowns"].items())
    console.print(
        f"Closed-set accuracy [bold]{percent(result['closed_set_accuracy'])}[/] on {result['knowns']:,} knowns"
    )
    console.print(f"Unknowns: {plain(sets)}\n")
    for grid in grids(result):
        console.print(f"{grid.title}: {grid.legend}")
        rows = [
            [" ".join(f"[bold]{v.text}[/]" if v.best else v.text for v in cell) for cell in cells]
            for cells in grid.cells
        ]
        print_numbers(grid.corner, grid.columns, dict(zip(grid.rows, rows, strict=True)), console)
    print_notes(result["notes"], console)
    console.print(f"→ [bold]{plain(result['evaluation'])}[/]")


@renders("score")
def _score(result: ScoreResult, console: Console) -> None:
    share = result["accepted"] / result["rows"] if result["rows"] else None
    console.print(f"{result['accepted']:,} of {result['rows']:,} accepted ([bold]{percent(share)}[/])")
    chosen = f", share {result['share']} of {result['store']}" if "share" in result else ""
    stored = ", stored with the model" if result["stored"] else ""
    console.print(f"Threshold {result['threshold']:.6g} ({result['rule']}{plain(chosen)}){stored}")
    if result["knowns"]:
        kept = result["knowns_accepted"] / result["knowns"]
        right = result["knowns_correct_and_accepted"] / result["knowns"]
        console.print(
            f"Labelled rows: {result['knowns']:,}, accepted {percent(kept)}, accepted and correct {percent(right)}"
        )
    if result["failures"]:
        console.print(f"{result['failures']:,} images could not be read and are not in the result")
    if result["classes_without_gaussian"]:
        names = result["classes_without_gaussian"]
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        console.print(f"Classes without a Gaussian, always rejected: {len(names):,} ({plain(shown)})")
    print_notes(result["notes"], console)
    console.print(f"→ [bold]{plain(result['scores'])}[/]")


@renders("extract")
def _extract(result: ExtractResult, console: Console) -> None:
    accuracy = "" if result["accuracy"] is None else f", closed-set accuracy {percent(result['accuracy'])}"
    rate = "" if result["images_per_second"] is None else f", {result['images_per_second']:,.1f} images/s"
    console.print(
        f"{result['rows']:,} images (K={result['classes']}, D={result['dimensions']}{accuracy}{rate}) "
        f"→ [bold]{plain(result['store'])}[/]"
    )
    spent = ", ".join(f"{stage} {seconds:,.1f} s" for stage, seconds in result["seconds"].items())
    console.print(f"time spent over all workers: {spent}")
    if result["failures"]:
        console.print(f"{result['failures']:,} images failed: {plain(result['store'])}/failures.parquet")
    print_notes(result["notes"], console)


@renders("report")
def _report(result: ReportResult, console: Console) -> None:
    for sentence in result["verdict"]:
        console.print(plain(sentence))
    for folder in result["unfinished"]:
        console.print(f"Not complete: {plain(folder)}")
    console.print(f"→ [bold]{plain(result['report'])}[/]  ({result['bytes'] / 1e6:.1f} MB)")
    if result["plots"]:
        figures = len(result["plots"]) // 3
        console.print(f"{figures} figures for papers in plots/ beside it, each as PNG, SVG and PDF")
