"""Versions, refits and the state of a registry as people read them on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ghost_ray.cli.show import Result, percent, plain, renders
from ghost_ray.progress import clock
from ghost_ray.registry.locks import describe


@renders("registry list")
def _list(result: Result, console: Console) -> None:
    if not result["versions"]:
        console.print(f"No version in {plain(result['root'])} yet")
        return
    rows = [("Version", "Role", "Created", "Accuracy", "Rejected", "AUOSCR", "Network")]
    for version in result["versions"]:
        refused = plain(f"refused: {', '.join(version['refused_by'])}") if version["refused_by"] else ""
        accuracy, rejected, _ = _figures(version["summary"])
        rows.append(
            (
                version["version"],
                version["role"] or refused,
                _when(version["created"]),
                accuracy,
                rejected,
                _mean_auoscr(version["summary"]),
                plain(str(version["network"]).partition(" (")[0]),  # `registry show` has the rest
            )
        )
    # Lines rather than a table: ids stay whole however narrow the terminal is.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(line, soft_wrap=True)


@renders("registry show")
def _show(result: Result, console: Console) -> None:
    accuracy, rejected, auoscr = _figures(result["summary"])
    console.print(f"[bold]{result['version']}[/]  {result['role'] or ''}  created {_when(result['created'])}")
    console.print(f"Network   {plain(result['network'])}, {result['rows']:,} samples")
    console.print(f"Accuracy  {accuracy}   rejected by the audit {rejected}   AUOSCR {auoscr}")
    for gate in result["gates"]:
        console.print(f"Gate      {'passed ' if gate['passed'] else 'REFUSED'} {plain(gate['text'])}")
    drift = result["drift"]
    if drift and drift.get("previous"):
        console.print(f"Changed   {plain(', '.join(drift['changed']))} since {plain(drift['previous'])}")
    console.print(f"Folder    {plain(result['folder'])}")


@renders("registry promote")
def _promote(result: Result, console: Console) -> None:
    before = f", before it {result['previous']}" if result["previous"] else ""
    console.print(f"Current: [bold]{result['current']}[/]{before}")


@renders("registry rollback")
def _rollback(result: Result, console: Console) -> None:
    console.print(f"Back to [bold]{result['current']}[/]; {result['held']} is held until it is promoted by hand")


@renders("registry prune")
def _prune(result: Result, console: Console) -> None:
    verb = "Would remove" if result["dry_run"] else "Removed"
    console.print(f"{verb} {len(result['removed'])}: {', '.join(result['removed']) or 'nothing'}")
    console.print(f"Kept {len(result['kept'])}: {', '.join(result['kept']) or 'nothing'}")


@renders("status")
def _status(result: Result, console: Console) -> None:
    now = result["current"]
    if now is None:
        console.print(f"No current version in {plain(result['root'])}")
    else:
        accuracy, rejected, auoscr = _figures(now["summary"])
        console.print(
            f"Current   [bold]{now['version']}[/] for {_age(now['age_seconds'])} (since {_when(now['promoted'])})"
        )
        console.print(f"Network   {plain(now['network'])}")
        console.print(f"Accuracy  {accuracy}   rejected by the audit {rejected}   AUOSCR {auoscr}")
    if result["running"] is not None:
        console.print(f"Running   {plain(describe(result['running']))}")
    if result["held"]:
        console.print(f"Held      {plain(', '.join(result['held']))}: rolled back, promoted by hand only")
    for attempt in result["attempts"]:
        console.print(f"Refit     {plain(_attempt(attempt))}")


def _attempt(attempt: dict[str, Any]) -> str:
    started, outcome, version, job = (attempt.get(name) or "–" for name in ("started", "outcome", "version", "job"))
    # That nothing changed is all there is to say of most.
    reason = f": {attempt['reason']}" if attempt.get("reason") and outcome != "up to date" else ""
    return f"{started}  {outcome!s:<11}  {version!s:<17}  {job}{reason}"


@renders("refit")
def _refit(result: Result, console: Console) -> None:
    if result["outcome"] not in ("promoted", "refused"):
        console.print(plain(result["reason"]))
        return
    accuracy, rejected, auoscr = _figures(result["summary"])
    if result["outcome"] == "promoted":
        console.print(f"Promoted [bold]{result['version']}[/] ({', '.join(result['changed'])} changed)")
    else:
        console.print(f"Refused [bold]{result['version']}[/]")
    console.print(f"Accuracy  {accuracy}   rejected by the audit {rejected}   AUOSCR {auoscr}")
    for gate in result["gates"]:
        console.print(f"Gate      {'passed ' if gate['passed'] else 'REFUSED'} {plain(gate['text'])}")


def _figures(summary: dict[str, Any]) -> tuple[str, str, str]:
    auoscr = summary.get("auoscr") or {}
    shown = ", ".join(f"{plain(name)} {value:.4f}" for name, value in auoscr.items()) or "–"
    return percent(summary.get("accuracy")), percent(summary.get("rejected_fraction")), shown


def _mean_auoscr(summary: dict[str, Any]) -> str:
    values = list((summary.get("auoscr") or {}).values())
    return f"{sum(values) / len(values):.4f}" if values else "–"


def _when(moment: object) -> str:
    """2026-03-01T02:17:09+00:00 → 2026-03-01 02:17 UTC."""
    text = plain(moment)
    return f"{text[:16].replace('T', ' ')} UTC" if text.endswith("+00:00") else text


def _age(seconds: int) -> str:
    days = seconds // 86400
    return f"{days} days" if days > 1 else clock(seconds)
