"""How ``demo`` shows its result: one table of all methods, the audit in a sentence, and where the page is."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ghost_ray.cli.show import Result, percent, plain, renders

# Name in metrics.json, heading, and whether more is better.
_COLUMNS = (
    ("auoscr", "AUOSCR ↑", True),
    ("auroc", "AUROC ↑", True),
    ("fpr95", "FPR95 ↓", False),
    ("f_at_c95", "F@C95 ↓", False),
    ("ccr_cv", "V ↓", False),
)


@renders("demo")
def _demo(result: Result, console: Console) -> None:
    from ghost_ray.evaluate.tables import display_name

    evaluation, audit = result["evaluate"], result["audit"]
    unknowns = sum(evaluation["unknowns"].values())
    console.print(
        f"\nHandwritten digits: 0–5 are known to the network, 6–9 are not.\nClosed-set accuracy "
        f"[bold]{percent(evaluation['closed_set_accuracy'])}[/] on {evaluation['knowns']:,} knowns; "
        f"{unknowns:,} unknowns.\n"
    )
    rows = evaluation["results"]
    table = Table("method")
    for _, heading, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    best = {
        name: (max if more else min)((row[name] for row in rows if row[name] is not None), default=None)
        for name, _, more in _COLUMNS
    }
    for row in rows:
        cells = ["–" if row[name] is None else f"{row[name]:.4f}" for name, _, _ in _COLUMNS]
        marked = [
            f"[bold green]{cell}[/]" if row[name] is not None and row[name] == best[name] else cell
            for cell, (name, _, _) in zip(cells, _COLUMNS, strict=True)
        ]
        table.add_row(display_name(row["method"]), *marked)
    console.print(table)
    console.print(
        "AUOSCR, AUROC: areas, 1 is perfect. FPR95: unknowns accepted when 95 % of the knowns are. "
        "F@C95: when 95 % of the closed-set accuracy is kept. V: unevenness over classes at 10 % FPR.\n"
    )
    console.print(f"Normality: {plain(audit['verdict'])}\n")
    console.print(f"→ [bold]{plain(result['report'])}[/]  (open it in a browser)")
    console.print(f"Figures for papers: ghost-ray report {plain(result['out'])}")
