"""How ``fit`` and ``audit`` show their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ghost_ray.cli.show import plain, print_notes, renders

if TYPE_CHECKING:
    from ghost_ray.jobs.audit.audit_job import AuditResult
    from ghost_ray.jobs.audit.audit_summary import Rejections
    from ghost_ray.jobs.fit import FitResult
    from ghost_ray.store import ClassCount

_NAMED = 10


@renders("fit")
def _fit(result: FitResult, console: Console) -> None:
    classes, dimensions = result["classes"], result["dimensions"]
    console.print(
        f"Gaussians of {classes - len(result['missing']):,} of {classes:,} classes × {dimensions:,} dimensions, from "
        f"{result['rows_used']:,} correctly classified of {result['rows']:,} rows"
    )
    if result["missing"]:
        console.print(f"Without a Gaussian, scored as unknown: {_classes(result['missing'])}")
    thin = result["thin"]
    if thin["classes"]:
        console.print(f"Fewer samples than dimensions ({dimensions:,}): {_classes(thin['smallest'], thin['classes'])}")
    constant = result["constant"]
    if constant["cells"]:
        everywhere = len(constant["dimensions_in_every_class"])
        console.print(
            f"Constant, so that they add nothing to scores: {constant['cells']:,} of {classes * dimensions:,} class × "
            f"dimension cells; constant in every class: {everywhere:,} of {dimensions:,} dimensions"
        )
    print_notes(result["notes"], console)
    console.print(f"→ [bold]{plain(result['model'])}[/]")


@renders("audit")
def _audit(result: AuditResult, console: Console) -> None:
    console.print(f"[bold]{plain(result['verdict'])}[/]\n")
    rates = [*result["paper"].items(), ("this network", result["rejected_fraction"])]
    table = Table("Tests that reject normality", "", box=None)
    for name, rate in sorted(rates, key=lambda row: row[1]):
        mark = "bold" if name == "this network" else ""
        table.add_row(name, f"{100 * rate:.2f} %", style=mark)
    console.print(table)
    for caveat in result["paper_caveats"]:
        console.print(caveat)
    console.print(
        f"\n{result['rejected']:,} of {result['tests']:,} tests reject, {result['degenerate']:,} cells are degenerate "
        f"(constant, or n < 3); median W {result['W_quantiles']['0.5']:.4f}"
    )
    if result["rejected"]:
        worst = [f"{_name(entry)} {_share(entry)}" for entry in result["worst_classes"][:3] if entry["rejected"]]
        console.print(f"Least normal classes: {plain(', '.join(worst))}")
        worst = [
            f"{entry['dimension']} {_share(entry)}" for entry in result["worst_dimensions"][:5] if entry["rejected"]
        ]
        console.print(f"Least normal dimensions: {', '.join(worst)}")
    named: dict[str, Sequence[ClassCount]] = {
        "Too few samples to test": result["untested_classes"],
        "Few samples, so that only large deviations can be detected": result["thin_classes"],
        "Large classes, tested on a random sample": result["sampled_classes"],
    }
    for words, classes in named.items():
        if classes:
            console.print(f"{words}: {_classes(classes)}")
    console.print(
        f"→ [bold]{plain(result['audit'])}[/]  (summary.json, normality.parquet, examples.parquet; "
        f"`ghost-ray report {plain(result['audit'])}` draws them)"
    )


def _name(entry: ClassCount) -> str:
    label, name = str(entry["class"]), entry["name"]
    return label if name == label else f"{label} {name}"


def _share(entry: Rejections) -> str:
    return f"({100 * entry['rejected_fraction']:.1f} %)"


def _classes(entries: Sequence[ClassCount], total: int | None = None) -> str:
    """``3 tench (n=1), 7 (n=0) and 12 more``."""
    shown = ", ".join(f"{_name(entry)} (n={entry['n']})" for entry in entries[:_NAMED])
    more = (len(entries) if total is None else total) - len(entries[:_NAMED])
    return plain(shown + (f" and {more:,} more" if more > 0 else ""))
