"""How ``study`` shows its plan and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.table import Table

from ghost_ray.cli.show import percent, plain, print_notes, print_numbers, renders

if TYPE_CHECKING:
    from ghost_ray.jobs.study.study_job import StudyResult
    from ghost_ray.jobs.study.study_plan import StudyPlan


@renders("study")
def _study(result: StudyResult | StudyPlan, console: Console) -> None:
    if "plan" in result:
        _plan(cast("StudyPlan", result), console)
    else:
        _result(result, console)


def _plan(plan: StudyPlan, console: Console) -> None:
    if plan["data"]:
        console.print(_images(plan))
    networks = Table(title="Networks", title_justify="left")
    # Names take several lines where there is no room; numbers are never cut.
    for column in ("network", "model"):
        networks.add_column(column, overflow="fold")
    for column in ("to extract", "images", "bytes", "cells"):
        networks.add_column(column, justify="right", no_wrap=True)
    networks.add_column("remark")
    for network in plan["networks"]:
        counted = ((len(network["given"]), "stores given"), (len(network["done"]), "done already"))
        known = [f"{count} {word}" for count, word in counted if count]
        remark = "; ".join(filter(None, [", ".join(known), network["problem"]]))
        counts = [str(len(network["extract"])), _count(network["images"]), _bytes(network["bytes"])]
        networks.add_row(
            plain(network["network"]), plain(network["model"]), *counts, str(network["cells"]), plain(remark)
        )
    console.print(networks)
    console.print(f"Methods: {plain(', '.join(plan['methods']))}. A cell is a method on an unknown set.")
    unsized = " (plus images of unknown size)" if plan["unsized"] else ""
    about = "about " if plan["estimated"] else ""
    read = f"{about}{_bytes(plan['bytes'])}{unsized} to read in {plan['requests']:,} requests"
    console.print(f"{plan['images']:,} images to embed, {read}. Nothing was run.")


def _images(plan: StudyPlan) -> Table:
    table = Table(title="Images", title_justify="left")
    table.add_column("role", overflow="fold")
    table.add_column("data", overflow="fold")
    for column in ("images", "bytes", "requests"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("remark")
    for part in plan["data"]:
        expected = " or ".join(f"{count:,}" for count in part["expected"])
        remark = part["problem"] or ""
        if expected and part["images"] not in part["expected"]:
            remark = "; ".join(filter(None, [remark, f"a complete copy has {expected}"]))
        about = "about " if part["estimated"] else ""
        counts = [_count(part["images"]), about + _bytes(part["bytes"]), _count(part["requests"])]
        table.add_row(plain(part["role"]), plain(part["data"]), *counts, plain(remark))
    return table


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} B"


def _result(result: StudyResult, console: Console) -> None:
    from ghost_ray.report.study.glance import metric_named, verdict
    from ghost_ray.report.study.lookup import Cells, title_of

    study = result["study"]
    cells = Cells(study)
    rows = {}
    metric = metric_named("auoscr")
    for network in study["networks"]:
        values = [cells.mean(network["name"], method, metric.field) for method in study["methods"]]
        texts = ["–" if value is None else f"{value:.4f}" for value in values]
        best = metric.best(values)
        shown = [f"[bold]{text}[/]" if best is not None and text == f"{best:.4f}" else text for text in texts]
        rate = percent(network["audit"]["rejected_fraction"])
        rows[network["name"]] = [percent(network["closed_set_accuracy"]), rate, *shown]
    console.print("Mean AUOSCR over the unknown sets")
    print_numbers("network", ["accuracy", "rejected", *map(title_of, study["methods"])], rows, console)
    console.print(plain(verdict(cells)))
    print_notes(study["notes"], console)
    console.print(f"→ [bold]{plain(result['report'])}[/]  (tables for papers: {plain(result['out'])}/tables)")
