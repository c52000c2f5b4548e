"""Versions, refits and the state of a registry as people read them on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from ghost_ray.cli.show import percent, plain, renders
from ghost_ray.progress import clock
from ghost_ray.registry.locks import describe

if TYPE_CHECKING:
    from ghost_ray.jobs.refit.results import RefitResult
    from ghost_ray.registry import AnsweredGate, AttemptRecord, Summary
    from ghost_ray.registry.looking import Listing, Shown
    from ghost_ray.registry.operations import Labels, Promotion, Pruned, Rollback
    from ghost_ray.registry.status import Current, StatusResult
    from ghost_ray.registry.verifying import Verified


@renders("registry list")
def _list(result: Listing, console: Console) -> None:
    if result["trouble"]:
        console.print(f"Damaged   {plain(result['trouble'])}")
    if not result["versions"]:
        console.print(f"No version in {plain(result['root'])} yet")
        return
    rows = [("Version", "Role", "Created", "Accuracy", "Rejected", "AUOSCR", "Network")]
    for version in result["versions"]:
        refused = f"refused: {', '.join(version['refused_by'])}" if version["refused_by"] else ""
        role = ", ".join(filter(None, [version["role"] or refused, *version["labels"]]))
        accuracy, rejected, _ = _figures(version["summary"])
        rows.append(
            (
                version["version"],
                plain(role),
                _when(version["created"]),
                accuracy,
                rejected,
                _mean_auoscr(version["summary"]),
                # `registry show` has the rest.
                plain(str(version["network"] or "–").partition(" (")[0]),
            )
        )
    # Lines rather than a table: ids stay whole however narrow the terminal is.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(line, soft_wrap=True)
    for version in result["versions"]:
        if version["damage"]:
            console.print(f"Damaged   {version['version']}: {plain(version['damage'])}")


@renders("registry show")
def _show(result: Shown, console: Console) -> None:
    accuracy, rejected, auoscr = _figures(result["summary"])
    names = "  ".join(filter(None, [result["role"], *result["labels"]]))
    console.print(f"[bold]{result['version']}[/]  {plain(names)}  created {_when(result['created'])}")
    if result["damage"]:
        console.print(f"Damaged   {plain(result['damage'])}")
    console.print(f"Network   {plain(result['network'])}, {result['rows']:,} samples")
    if result["weights"]:
        kept = f", a copy is kept: {result['kept_weights']}" if result["kept_weights"] else ""
        console.print(f"Weights   {plain(result['weights'])}{plain(kept)}")
    console.print(f"Accuracy  {accuracy}   rejected by the audit {rejected}   AUOSCR {auoscr}")
    _gates(result["gates"], console)
    drift = result["drift"]
    if drift and drift.get("previous"):
        console.print(f"Changed   {plain(', '.join(drift['changed']))} since {plain(drift['previous'])}")
    for move in result["history"]:
        console.print(f"Current   {plain(_move(move))}")
    console.print(f"Folder    {plain(result['folder'])}")


def _move(move: dict[str, Any]) -> str:
    by = "@".join(str(move[name]) for name in ("user", "host") if move.get(name))
    job = f" ({move['job']})" if move.get("job") else ""
    reason = f": {move['reason']}" if move.get("reason") else ""
    return f"since {_when(move['at'])} by {move['by']}{f', {by}' if by else ''}{job}{reason}"


@renders("registry promote")
def _promote(result: Promotion, console: Console) -> None:
    before = f", before it {result['previous']}" if result["previous"] else ""
    console.print(f"Current: [bold]{result['current']}[/]{before}")


@renders("registry rollback")
def _rollback(result: Rollback, console: Console) -> None:
    for skipped in result["skipped"]:
        console.print(f"Skipped {skipped['version']}, which is damaged: {plain(skipped['problem'])}")
    if result["held"]:
        after = f"{result['held']} is held until it is promoted by hand"
    else:
        after = f"{result['left']} is damaged and not held: a refit makes it again"
    console.print(f"Back to [bold]{result['current']}[/]; {after}")


@renders("registry label")
def _label(result: Labels, console: Console) -> None:
    for name, version in result["labels"].items():
        console.print(f"{plain(name)}: [bold]{version}[/]")
    if not result["labels"]:
        console.print("No version has a label")


@renders("registry prune")
def _prune(result: Pruned, console: Console) -> None:
    verb = "Would remove" if result["dry_run"] else "Removed"
    console.print(f"{verb} {len(result['removed'])}: {', '.join(result['removed']) or 'nothing'}")
    console.print(f"Kept {len(result['kept'])}: {', '.join(result['kept']) or 'nothing'}")


@renders("status")
def _status(result: StatusResult, console: Console) -> None:
    now = result["current"]
    if now is None:
        console.print(f"No current version in {plain(result['root'])}")
    else:
        accuracy, rejected, auoscr = _figures(now["summary"])
        console.print(f"Current   [bold]{now['version']}[/] {_since(now)}")
        if now["network"]:
            console.print(f"Network   {plain(now['network'])}")
            console.print(f"Accuracy  {accuracy}   rejected by the audit {rejected}   AUOSCR {auoscr}")
    for version, problem in result["damaged"].items():
        console.print(f"Damaged   {version}: {plain(problem)}")
    if result["running"] is not None:
        console.print(f"Running   {plain(describe(result['running']))}")
    if result["held"]:
        console.print(f"Held      {plain(', '.join(result['held']))}: rolled back, promoted by hand only")
    for attempt in result["attempts"]:
        console.print(f"Refit     {plain(_attempt(attempt))}")
    for problem in result["problems"]:
        console.print(f"Problem   {plain(problem)}")


def _since(now: Current) -> str:
    if now["age_seconds"] is None:
        return f"since {_when(now['promoted'])}, which is in the future: a clock is wrong"
    return f"for {_age(now['age_seconds'])} (since {_when(now['promoted'])})"


def _attempt(attempt: AttemptRecord) -> str:
    # Most refits only find that nothing changed.
    told = attempt.get("reason") and attempt["outcome"] != "up to date"
    reason = f": {attempt.get('reason')}" if told else ""
    version = attempt.get("version") or "–"
    return f"{attempt['started']}  {attempt['outcome']:<11}  {version:<17}  {attempt['job'] or '–'}{reason}"


@renders("refit")
def _refit(result: RefitResult, console: Console) -> None:
    outcome = result["outcome"]
    if outcome == "planned":
        console.print(plain(result["reason"]))
        for step in result.get("steps", []):
            console.print(f"{step['action']:<8}  {plain(step['what'])}: {plain(step['why'])}")
        return
    if outcome not in ("promoted", "refused"):
        console.print(plain(result["reason"]))
        return
    accuracy, rejected, auoscr = _figures(result.get("summary", {}))
    if outcome == "promoted":
        console.print(f"Promoted [bold]{result['version']}[/] ({', '.join(result.get('changed', []))} changed)")
    else:
        console.print(f"Refused [bold]{result['version']}[/]")
    console.print(f"Accuracy  {accuracy}   rejected by the audit {rejected}   AUOSCR {auoscr}")
    _gates(result.get("gates", []), console)


@renders("verify")
def _verify(result: Verified, console: Console) -> None:
    for damage in result["damaged"]:
        console.print(f"Damaged   {plain(damage['file'])} {plain(damage['problem'])}")
    for folder in result["unlisted"]:
        console.print(
            f"Unchecked {plain(folder)}: its manifest lists no files: version 0.1 wrote it, or the list was removed"
        )
    console.print(
        f"{result['files']:,} files of {result['results']:,} results read, {result['bytes'] / 1e6:,.1f} MB; "
        f"{len(result['damaged']):,} damaged"
    )


def _gates(gates: list[AnsweredGate], console: Console) -> None:
    for gate in gates:
        console.print(f"Gate      {'passed ' if gate['passed'] else 'REFUSED'} {plain(gate['text'])}")


def _figures(summary: Summary) -> tuple[str, str, str]:
    auoscr = summary.get("auoscr") or {}
    shown = ", ".join(f"{plain(name)} {value:.4f}" for name, value in auoscr.items()) or "–"
    return percent(summary.get("accuracy")), percent(summary.get("rejected_fraction")), shown


def _mean_auoscr(summary: Summary) -> str:
    values = list((summary.get("auoscr") or {}).values())
    return f"{sum(values) / len(values):.4f}" if values else "–"


def _when(moment: str | None) -> str:
    """2026-03-01T02:17:09+00:00 → 2026-03-01 02:17 UTC."""
    text = plain(moment or "–")
    return f"{text[:16].replace('T', ' ')} UTC" if text.endswith("+00:00") else text


def _age(seconds: int) -> str:
    days = seconds // 86400
    return f"{days} days" if days > 1 else clock(seconds)
