"""A package that pip installs adds a method, a format and a network: through Ray, to the tables and the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import toy_package
from support.networks import CLASSES
from support.raw_sources import picture

SCRIPT = """
import sys
from ghost_ray.cluster import ray_session
from ghost_ray.config import EvaluateConfig, ExtractConfig, RayJobConfig, ReportConfig
from ghost_ray.jobs import evaluate, extract
from ghost_ray.report import run as report

with ray_session(RayJobConfig(num_cpus=2)):
    for name in ("fit", "known", "near"):
        extract.run(ExtractConfig(data=f"{name}.toy", model="their-net", unknown=name == "near", out=f"store-{name}"))
    methods = ("ghost", "msp", "norm", "norm:power=2", "own_file:Norm")
    stores = {"fit": "store-fit", "known": "store-known", "unknown": {"near": "store-near"}}
    evaluate.run(EvaluateConfig(**stores, methods=methods, draw_size=10, out="evaluation"))
report(ReportConfig(folders=("evaluation",), out="report.html", plots=False))
"""


@pytest.mark.slow
def test_from_pip_to_the_page(tmp_path: Path) -> None:
    site = toy_package.install(tmp_path)
    (tmp_path / "own_file.py").write_text(toy_package.MODULE)
    for number, name in enumerate(("fit", "known", "near")):
        lines = [f"{i}.png {i % CLASSES} {picture(100 * number + i).hex()}" for i in range(40)]
        (tmp_path / f"{name}.toy").write_text("\n".join(lines))
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    manifest = json.loads((tmp_path / "store-fit/manifest.json").read_text())
    assert (manifest["rows"], manifest["data"][0]["kind"], manifest["network"]["name"]) == (40, "toy", "their-net")
    titles = ["GHOST", "MSP", "Feature norm", "Feature norm (power=2)", "Norm"]
    content = json.loads((tmp_path / "evaluation/metrics.json").read_text())
    measured = {result["method"]: result for result in content["results"]}
    assert measured["norm"]["auroc"] == measured["norm:power=2"]["auroc"] == measured["own_file:Norm"]["auroc"]
    assert f"| Unknowns | {' | '.join(titles)} |" in (tmp_path / "evaluation/table.md").read_text()
    help_text = [sys.executable, "-m", "ghost_ray", "evaluate", "--help"]
    shown = subprocess.run(help_text, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120).stdout
    assert "Feature norm, power=1" in shown
    # The page is made by a process that never saw the file with the other method.
    again = [sys.executable, "-m", "ghost_ray", "report", "evaluation", "--no-plots", "--out", "again.html"]
    (tmp_path / "own_file.py").unlink()
    subprocess.run(again, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    for page in ("report.html", "again.html"):
        assert all(f">{title}<" in (tmp_path / page).read_text() for title in titles)
