"""What a refit says while it runs: lines of ``key=value`` with job and version, and Ray metrics where Ray runs."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from ghost_ray.cluster.ray_interfaces import set_gauge
from ghost_ray.errors import one_line, redact
from ghost_ray.files.manifest import now
from ghost_ray.progress import say
from ghost_ray.registry import Summary
from ghost_ray.registry.who import job_id


class Log:
    """Structured lines; ``version`` is filled in as soon as it is known."""

    def __init__(self) -> None:
        self.job = job_id()
        self.version = "-"
        self.seconds: dict[str, float] = {}

    def line(self, event: str, **facts: Any) -> None:
        """``refit time=… job=… version=… event=extract store=known``."""
        fields = {"time": now(), "job": self.job, "version": self.version, "event": event, **facts}
        say("refit " + " ".join(f"{name}={_value(value)}" for name, value in fields.items()))

    @contextlib.contextmanager
    def stage(self, name: str, **facts: Any) -> Iterator[None]:
        """A stage with its beginning, end and duration."""
        self.line("start", stage=name, **facts)
        start = time.monotonic()
        yield
        took = time.monotonic() - start
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)
        self.line("done", stage=name, seconds=round(took, 1), **facts)
        self._gauge("ghost_ray_refit_stage_seconds", "Seconds a stage of the last refit took", took, stage=name)

    def figures(self, summary: Summary) -> None:
        """The version's figures, for dashboards."""
        values: dict[str, float | None] = {
            "accuracy": summary.get("accuracy"),
            "rejected_fraction": summary.get("rejected_fraction"),
            "classes_without_gaussian": summary.get("classes_without_gaussian"),
            **{f"auoscr.{name}": value for name, value in summary.get("auoscr", {}).items()},
        }
        for name, value in values.items():
            if value is not None:
                self._gauge("ghost_ray_refit_figure", "Figures of the last version made", float(value), figure=name)

    def _gauge(self, name: str, text: str, value: float, **tags: str) -> None:
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return
        set_gauge(name, text, value, **tags)


def _value(value: Any) -> str:
    text = one_line(redact(str(value)))
    return text if re.fullmatch(r"[^\s\"=]+", text) else json.dumps(text, ensure_ascii=False)
