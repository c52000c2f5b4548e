"""What a refit returns, and its last line on stdout: one JSON object, for the scheduler."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from ghost_ray.errors import GateFailed, GhostRayError, InputError, one_line, redact
from ghost_ray.registry import AnsweredGate, Busy, Outcome, Summary

Action = Literal["use", "compute"]


class Step(TypedDict):
    """A part of a version, and whether it must be computed."""

    what: str  # store.ROLE, model (with its threshold), audit or evaluation
    action: Action
    why: str


class RefitResult(TypedDict):
    """What ``refit`` returns; the last five only if it got that far."""

    outcome: Outcome | Literal["planned"]
    version: str | None
    reason: str
    changed: NotRequired[list[str]]
    steps: NotRequired[list[Step]]
    previous: NotRequired[str | None]
    summary: NotRequired[Summary]
    gates: NotRequired[list[AnsweredGate]]
    seconds: NotRequired[dict[str, float]]


class Answer(TypedDict):
    """How a refit ended, in one JSON line; the fields of its result are included."""

    outcome: str
    version: str | None
    reason: str
    exit_code: int
    todo: str


_NOTHING = "nothing"
_TODO = {
    "promoted": _NOTHING,
    "up to date": _NOTHING,
    "planned": "run it without `plan`",
    "held": "promote the held version by hand, or change weights, data or settings",
    "refused": "look at `ghost-ray registry show`; promote it by hand, or change the gates, the data or the weights",
    "busy": "run it again later",
    "stopped": "run the same command again: it resumes",
}
_AGAIN = "run the same command again: it resumes"
_CHANGE = "change what the reason names; without a change, the next run ends in the same way"


def outcome_of(error: BaseException) -> Outcome:
    """How a refit ended that raised."""
    if isinstance(error, GateFailed):
        return "refused"
    if isinstance(error, Busy):
        return "busy"
    return "failed" if isinstance(error, Exception) else "stopped"


def reason_of(error: BaseException) -> str:
    """Why, in full."""
    text = error.full if isinstance(error, GhostRayError) else one_line(redact(str(error)), None)
    return text or type(error).__name__


def answer(ended: RefitResult | BaseException, exit_code: int) -> dict[str, object]:
    """The last line of a refit that returned or raised ``ended``."""
    if isinstance(ended, BaseException):
        outcome: str = outcome_of(ended)
        result = ended.result if isinstance(ended, GateFailed) and ended.result is not None else {}
        common: Answer = {
            "outcome": outcome,
            "version": None,
            "reason": reason_of(ended),
            "exit_code": exit_code,
            "todo": _TODO.get(outcome) or (_CHANGE if isinstance(ended, InputError) else _AGAIN),
        }
        return {**common, **result}
    return {**ended, "exit_code": exit_code, "todo": _TODO[ended["outcome"]]}
