"""How GHOST compares with its rivals, in a few sentences that are correct for any numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ghost_ray.report.numbers import decimal, number, plural, shown_value, told_apart
from ghost_ray.scorers import is_rival, title_of

GHOST = "ghost"
Found = Mapping[tuple[str, str], Mapping[str, object]]  # an object of metrics.json per method and unknown set
Outcome = Literal["GHOST", "rival", "none"]  # which method a paired test finds better


def evaluation_verdict(
    found: Found, methods: Sequence[str], sets: Sequence[str], proven: Mapping[str, Sequence[Outcome]]
) -> str:
    """The verdict on an evaluation.

    Parameters
    ----------
    proven : mapping
        For each rival what the paired tests of AUOSCR say, one answer per unknown set.
    """
    if not found:
        return "The evaluation has no result yet: its metrics.json is missing or cannot be read."
    means = {method: mean_over(found, method, sets, "auoscr") for method in methods}
    known = {method: value for method, value in means.items() if value is not None}
    rivals = {method: value for method, value in known.items() if _is_rival(found, method)}
    if GHOST not in known or not rivals:
        return f"{plural(len(methods), 'method')} measured on {plural(len(sets), 'unknown set')}."
    rival = max(rivals, key=rivals.__getitem__)
    sentences = [
        _standing(known[GHOST], rivals[rival], title_of(rival), _won(found, methods, sets), len(sets)),
        _sets_won(_won(found, methods, sets), len(sets)),
        _tests(title_of(rival), proven.get(rival, [])),
        _variant(known, rivals, title_of(rival)),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def mean_over(found: Found, method: str, sets: Sequence[str], field: str) -> float | None:
    """The plain mean over the sets; None if a set has no value."""
    values = [number(found.get((method, name), {}).get(field)) for name in sets]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _standing(mine: float, best: float, rival: str, won: int, sets: int) -> str:
    measure = "mean AUOSCR" if sets > 1 else "AUOSCR"
    if mine == best:
        return f"GHOST ties with the best rival, {rival}: the {measure} of both is {told_apart(mine)[0]}."
    # A mean above the others' is no lead where a rival is first on a set.
    ahead = "GHOST leads" if won == sets else "GHOST has a higher mean than every rival"
    begins, side = (ahead, "above") if mine > best else ("GHOST does not lead", "below")
    ours, theirs = told_apart(mine, best)
    # From the rounded numbers, so that a reader gets the same result.
    difference = decimal(abs(shown_value(ours) - shown_value(theirs)), len(ours.partition(".")[2]))
    return f"{begins}: its {measure} is {ours}, {difference} {side} the best rival’s ({rival}, {theirs})."


def _won(found: Found, methods: Sequence[str], sets: Sequence[str]) -> int:
    return sum(_leads(found, methods, name) for name in sets)


def _sets_won(won: int, sets: int) -> str:
    if sets < 2:
        return ""
    shown = {0: "none", sets: "each"}.get(won, str(won))
    return f"It is ahead of every rival on {shown} of {sets} unknown sets."


def _leads(found: Found, methods: Sequence[str], name: str) -> bool:
    values = {method: number(found.get((method, name), {}).get("auoscr")) for method in methods}
    mine = values[GHOST]
    return mine is not None and all(v is None or v < mine for m, v in values.items() if _is_rival(found, m))


def _is_rival(found: Found, method: str) -> bool:
    return any(is_rival(method, result) for (name, _), result in found.items() if name == method)


def _tests(rival: str, outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    shown = [outcome for outcome in outcomes if outcome != "none"]
    if not shown:
        return f"No paired test finds the difference from {rival} significant."
    if len(outcomes) == 1:
        return f"A paired test finds the difference from {rival} significant."
    favours = f"in favour of GHOST on {shown.count('GHOST')}, of {rival} on {shown.count('rival')}"
    return (
        f"Paired tests find the difference from {rival} significant on {len(shown)} of {len(outcomes)} sets, {favours}."
    )


def _variant(known: Mapping[str, float], rivals: Mapping[str, float], rival: str) -> str:
    better = {method: value for method, value in known.items() if method not in rivals and value > known[GHOST]}
    if not better:
        return ""
    best, best_rival = max(better, key=better.__getitem__), max(rivals.values())
    value, _, theirs = told_apart(better[best], known[GHOST], best_rival)
    if better[best] <= best_rival:
        return f"Its variant {title_of(best)} does better than GHOST ({value}), and no better than {rival} ({theirs})."
    if known[GHOST] > best_rival:
        return f"Its variant {title_of(best)} does better still ({value})."
    return f"Its variant {title_of(best)} leads ({value})."
