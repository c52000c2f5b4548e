"""What the Grafana dashboard asks Prometheus for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json"


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_FILE.read_text())
    return content


def metrics_on_the_dashboard() -> set[str]:
    """Names of the metrics in the panels' queries, as Prometheus knows them."""
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    return {name for expression in targets for name in re.findall(r"ray_ghost_ray_\w+", expression)}
