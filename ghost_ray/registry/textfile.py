"""The state of a registry as metrics in a file, for Prometheus' node exporter.

If nothing changed, a refit ends in seconds and does not start Ray: its metrics would be gone before the next scrape.
The registry keeps the state.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import write_bytes
from ghost_ray.registry.attempts import AttemptRecord, last_told

if TYPE_CHECKING:
    from ghost_ray.registry.status import Current

# Each with its help text; the alert rules and the dashboard use these names.
METRICS = {
    "ghost_ray_registry_promoted_timestamp_seconds": "When the current version became current.",
    "ghost_ray_registry_confirmed_timestamp_seconds": "When the current version was last found up to date.",
    "ghost_ray_registry_damaged": "1 where the current version, or the file that names it, is not as it was written.",
    "ghost_ray_registry_held": "1 where the newest version was rolled back.",
    "ghost_ray_refit_last_outcome": "1 for the outcome of the last refit that ended or was killed.",
    "ghost_ray_refit_last_end_timestamp_seconds": "When the last refit ended.",
    "ghost_ray_refit_last_duration_seconds": "How long the last refit took.",
}


def write_metrics(
    file: str, root: str, serving: Current | None, attempts: list[AttemptRecord], *, damaged: bool, held: bool
) -> None:
    """Write all metrics of a registry, in one step."""
    labels = f'registry="{_escaped(redact(root))}"'
    samples: list[tuple[str, str, float]] = [
        ("ghost_ray_registry_held", labels, float(held)),
        ("ghost_ray_registry_damaged", labels, float(damaged)),
    ]
    if serving is not None:
        samples += [
            ("ghost_ray_registry_promoted_timestamp_seconds", labels, _seconds(serving["promoted"])),
            ("ghost_ray_registry_confirmed_timestamp_seconds", labels, _seconds(serving["confirmed"])),
        ]
    last = last_told(attempts)
    if last is not None:
        samples.append(("ghost_ray_refit_last_outcome", f'{labels},outcome="{last["outcome"]}"', 1.0))
    if last is not None and "ended" in last:  # nobody saw the end of one that was killed
        samples += [
            ("ghost_ray_refit_last_end_timestamp_seconds", labels, _seconds(last["ended"])),
            ("ghost_ray_refit_last_duration_seconds", labels, last.get("seconds", 0.0)),
        ]
    lines = []
    for name, tags, value in samples:
        lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} gauge", f"{name}{{{tags}}} {value:.15g}"]
    try:
        write_bytes(file, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise InputError(
            "metrics", file, f"cannot be written: {one_line(error)}", "name a file you may write"
        ) from None


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
