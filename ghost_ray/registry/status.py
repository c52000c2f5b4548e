"""``ghost-ray status``: which version serves, whether it is intact and fresh, and how the last refits ended."""

from __future__ import annotations

import datetime
from typing import TypedDict

from ghost_ray.config.refit_settings import StatusConfig
from ghost_ray.errors import Damaged, GateFailed, redact
from ghost_ray.files import reaching
from ghost_ray.progress import clock
from ghost_ray.registry.attempts import BAD, GOOD, AttemptRecord, last_attempts, last_told
from ghost_ray.registry.locks import Holder, holder
from ghost_ray.registry.looking import Brief, brief, pointer_of
from ghost_ray.registry.pointer import CURRENT, Pointer
from ghost_ray.registry.soundness import damages_of, in_words
from ghost_ray.registry.textfile import write_metrics
from ghost_ray.registry.versions import version_ids

_LOOKED_AT = 50
_LOST = f"{CURRENT} and its copy are lost: `ghost-ray registry promote` makes a version current again"
_HELD = "the newest version was rolled back and is held: an older one serves until it is promoted, or its inputs change"


class Current(Brief):
    """The version that serves."""

    promoted: str
    age_seconds: int | None  # since it became current; None if that is in the future
    confirmed: str  # when a refit last found it up to date, or it became current
    confirmed_seconds: int | None


class StatusResult(TypedDict):
    """What ``status`` returns."""

    root: str
    current: Current | None
    previous: str | None
    running: Holder | None
    versions: int
    held: list[str]
    damaged: dict[str, str]  # other versions than the current one, by what their sizes show
    attempts: list[AttemptRecord]
    problems: list[str]  # what `--check` fails for


def status(config: StatusConfig) -> StatusResult:
    """Check everything; the current version is read in full.

    Raises
    ------
    GateFailed
        With ``check``, if something is wrong; the result is still valid.
    """
    root = config.root
    try:
        pointer, trouble = pointer_of(root)
    except Damaged:
        if config.metrics is not None:  # else the file would go on saying that all is well
            write_metrics(config.metrics, root, None, _refits(root)[1], damaged=True, held=False)
        raise
    running, attempts = _refits(root)
    if pointer is None and any(attempt["outcome"] in GOOD for attempt in attempts):
        trouble = _LOST
    with reaching(root, "root"):
        versions = version_ids(root)
        others = {
            version: problem
            for version in versions
            if (pointer is None or version != pointer.version)
            and (problem := in_words(damages_of(root, version, thorough=False)))
        }
        serving = None if pointer is None else _current(root, pointer, attempts)
    result: StatusResult = {
        "root": redact(root),
        "current": serving,
        "previous": None if pointer is None else pointer.previous,
        "running": running,
        "versions": len(versions),
        "held": [] if pointer is None else [held.version for held in pointer.held],
        "damaged": others,
        "attempts": attempts[: config.attempts],
        "problems": [*([trouble] if trouble else []), *_problems(pointer, serving, attempts, config.max_age)],
    }
    if config.metrics is not None:
        damaged = trouble is not None or (serving is not None and serving["damage"] is not None)
        write_metrics(config.metrics, root, serving, attempts, damaged=damaged, held=_is_held(pointer, attempts))
    if config.check and result["problems"]:
        raise GateFailed("; ".join(result["problems"]), dict(result))
    return result


def _refits(root: str) -> tuple[Holder | None, list[AttemptRecord]]:
    """Who is working, and the last refits."""
    with reaching(root, "root"):
        running = holder(root, "refit")
        return running, last_attempts(root, _LOOKED_AT, running=running)


def _current(root: str, pointer: Pointer, attempts: list[AttemptRecord]) -> Current:
    good = [
        attempt["ended"]
        for attempt in attempts
        if attempt["outcome"] in GOOD and attempt.get("version") == pointer.version and "ended" in attempt
    ]
    confirmed = max([pointer.promoted, *good], key=datetime.datetime.fromisoformat)
    return {
        **brief(root, pointer.version, pointer, thorough=True),
        "promoted": pointer.promoted,
        "age_seconds": _age(pointer.promoted),
        "confirmed": confirmed,
        "confirmed_seconds": _age(confirmed),
    }


def _age(moment: str) -> int | None:
    """Whole seconds since a moment; None if it is in the future by more than clocks may differ."""
    seconds = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
    return max(0, int(seconds)) if seconds > -_CLOCKS_DIFFER else None


_CLOCKS_DIFFER = 60.0


def _problems(
    pointer: Pointer | None, serving: Current | None, attempts: list[AttemptRecord], max_age: float | None
) -> list[str]:
    found: list[str] = []
    if serving is None:
        found.append("no version is current")
    else:
        if serving["damage"]:
            found.append(f"{serving['version']} is damaged: {serving['damage']}")
        age = serving["confirmed_seconds"]
        if age is None:
            found.append(f"{serving['version']} was confirmed at {serving['confirmed']}, which is in the future")
        elif max_age is not None and age > max_age:
            found.append(f"{serving['version']} was last confirmed {clock(age)} ago, more than {clock(max_age)}")
    if _is_held(pointer, attempts):
        found.append(_HELD)
    last = last_told(attempts)
    if last is not None and last["outcome"] in BAD:
        reason = last.get("reason")
        found.append(f"the last refit {BAD[last['outcome']]}" + (f": {reason}" if reason else ""))
    return found


def _is_held(pointer: Pointer | None, attempts: list[AttemptRecord]) -> bool:
    """Whether an older version serves because the newest was rolled back, as far as the last refits know.

    A refit that was refused had other inputs than those that are held. One that failed may not have come that far.
    """
    if pointer is None:
        return False
    move = pointer.history[-1]
    back = move.by == "rollback" and any(held.at == move.at for held in pointer.held)
    last = next((attempt for attempt in attempts if attempt["outcome"] in (*GOOD, "held", "refused")), None)
    if last is None:
        return back
    if last["outcome"] == "held":
        return back or last.get("version") in (None, pointer.version)
    return last["outcome"] in GOOD and any(held.version == last.get("version") for held in pointer.held)
