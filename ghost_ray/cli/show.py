"""Results as people read them on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

Result = dict[str, Any]
_RENDERERS: dict[str, Callable[[Result, Console], None]] = {}


def renders(command: str) -> Callable[[Callable[[Result, Console], None]], Callable[[Result, Console], None]]:
    """Register the function that shows a command's result."""

    def register(function: Callable[[Result, Console], None]) -> Callable[[Result, Console], None]:
        _RENDERERS[command] = function
        return function

    return register


def render(command: str, result: Result) -> None:
    """Show a result on stdout."""
    from ghost_ray.cli import show_demo, show_fit, show_registry  # noqa: F401 - they register their renderers

    _RENDERERS[command](result, Console(highlight=False, soft_wrap=True))


@renders("import")
def _import(result: Result, console: Console) -> None:
    accuracy = "" if result["accuracy"] is None else f", closed-set accuracy {result['accuracy']:.2%}"
    head = "with" if result["head"] else "without"
    console.print(
        f"{result['rows']:,} rows (K={result['classes']}, D={result['dimensions']}, {head} a linear head{accuracy}) "
        f"→ [bold]{result['store']}[/]"
    )


@renders("evaluate")
def _evaluate(result: Result, console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    from ghost_ray.evaluate.tables import grids

    sets = ", ".join(f"{name} {rows:,}" for name, rows in result["unknowns"].items())
    console.print(f"Closed-set accuracy [bold]{result['closed_set_accuracy']:.2%}[/] on {result['knowns']:,} knowns")
    console.print(f"Unknowns: {escape(sets)}\n")
    for grid in grids(result):
        console.print(f"{grid.title}: {grid.legend}")
        first = max(map(len, (grid.corner, *grid.rows)))
        wide = max(
            *(len(" ".join(v.text for v in cell)) for row in grid.cells for cell in row), *map(len, grid.columns)
        )
        step = max(1, (console.width - first - 4) // (wide + 3))
        for start in range(0, len(grid.columns), step):
            part = slice(start, start + step)
            table = Table(grid.corner)
            for column in grid.columns[part]:
                table.add_column(escape(column), justify="right", no_wrap=True)
            for name, cells in zip(grid.rows, grid.cells, strict=True):
                shown = [" ".join(f"[bold]{v.text}[/]" if v.best else v.text for v in cell) for cell in cells[part]]
                table.add_row(escape(name), *shown)
            console.print(table)
    for note in result["notes"]:
        console.print(f"Note: {escape(note)}")
    console.print(f"→ [bold]{escape(result['evaluation'])}[/]")


@renders("score")
def _score(result: Result, console: Console) -> None:
    from rich.markup import escape

    share = result["accepted"] / result["rows"]
    console.print(f"{result['accepted']:,} of {result['rows']:,} accepted ([bold]{share:.2%}[/])")
    chosen = f", share {result['share']} of {result['store']}" if "share" in result else ""
    stored = ", stored with the model" if result["stored"] else ""
    console.print(f"Threshold {result['threshold']:.6g} ({result['rule']}{escape(chosen)}){stored}")
    if result["knowns"]:
        kept = result["knowns_accepted"] / result["knowns"]
        right = result["knowns_correct_and_accepted"] / result["knowns"]
        console.print(f"Labelled rows: {result['knowns']:,}, accepted {kept:.2%}, accepted and correct {right:.2%}")
    if result["failures"]:
        console.print(f"{result['failures']:,} images could not be read and are not in the result")
    if result["classes_without_gaussian"]:
        names = result["classes_without_gaussian"]
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        console.print(f"Without a Gaussian, always rejected: {len(names)} classes ({escape(shown)})")
    console.print(f"→ [bold]{escape(result['scores'])}[/]")


@renders("extract")
def _extract(result: Result, console: Console) -> None:
    accuracy = "" if result["accuracy"] is None else f", closed-set accuracy {result['accuracy']:.2%}"
    rate = "" if result["images_per_second"] is None else f", {result['images_per_second']:,.1f} images/s"
    console.print(
        f"{result['rows']:,} images (K={result['classes']}, D={result['dimensions']}{accuracy}{rate}) "
        f"→ [bold]{result['store']}[/]"
    )
    spent = ", ".join(f"{stage} {seconds:,.1f} s" for stage, seconds in result["seconds"].items())
    console.print(f"time spent over all workers: {spent}")
    if result["failures"]:
        console.print(f"{result['failures']:,} images failed: {result['store']}/failures.parquet")


@renders("report")
def _report(result: Result, console: Console) -> None:
    for sentence in result["verdict"]:
        console.print(sentence, markup=False)
    for folder in result["unfinished"]:
        console.print(f"not complete: {folder}", markup=False)
    console.print(f"{result['bytes'] / 1e6:.1f} MB → {result['report']}", markup=False, style="bold")
    if result["plots"]:
        console.print(f"{len(result['plots'])} files of figures (PNG, SVG, PDF) in plots/ beside it")
