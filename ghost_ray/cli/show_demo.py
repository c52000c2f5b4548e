"""How ``demo`` shows its result: one table of all methods, the audit in a sentence, and where the page is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ghost_ray.cli.show import percent, plain, renders

if TYPE_CHECKING:
    from ghost_ray.demo import DemoResult


@renders("demo")
def _demo(result: DemoResult, console: Console) -> None:
    from ghost_ray.metrics import in_demo
    from ghost_ray.scorers import title_of

    evaluation, audit = result["evaluate"], result["audit"]
    unknowns = sum(evaluation["unknowns"].values())
    console.print(
        f"\nHandwritten digits: the network knows 0–5 and does not know 6–9.\nClosed-set accuracy "
        f"[bold]{percent(evaluation['closed_set_accuracy'])}[/] on {evaluation['knowns']:,} knowns; "
        f"{unknowns:,} unknowns.\n"
    )
    rows = evaluation["results"]
    shown = in_demo()
    table = Table("method")
    for metric in shown:
        table.add_column(f"{metric.title} {metric.arrow}", justify="right")
    best = {metric.field: metric.best(metric.read(row) for row in rows) for metric in shown}
    for row in rows:
        cells = []
        for metric in shown:
            value = metric.read(row)
            text = "–" if value is None else f"{value:.4f}"
            cells.append(f"[bold green]{text}[/]" if value is not None and value == best[metric.field] else text)
        table.add_row(title_of(row["method"]), *cells)
    console.print(table)
    for metric in shown:
        console.print(f"{metric.title}: {metric.meaning}.")
    console.print(f"\nNormality: {plain(audit['verdict'])}\n")
    console.print(f"→ [bold]{plain(result['report'])}[/]  (open it in a browser)")
    console.print(f"→ [bold]{plain(result['study']['report'])}[/]  (two networks side by side)")
    console.print(f"Figures for papers: ghost-ray report {plain(result['out'])}")
