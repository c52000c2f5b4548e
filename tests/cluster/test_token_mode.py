"""Clusters with and without tokens, and drivers that were set up for the other kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.clusters import counted_gpus
from support.job_processes import run
from support.refits import write_pictures

from ghost_ray.cluster.ray_interfaces import wants_token


@pytest.mark.slow
def test_a_driver_in_token_mode_joins_a_cluster_without_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A Ray that was started in the same shell or notebook before leaves such an environment behind.
    write_pictures(tmp_path / "images", 3, seed=1)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with counted_gpus(1) as address:
        assert wants_token(address) is False
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
        words = ["--data", str(tmp_path / "images"), "--out", str(tmp_path / "store"), "--address", address]
        assert run("extract", *words, "--model", "support.networks:small").result()["rows"] == 12


def test_the_mode_is_given_back() -> None:
    # In a child process: the mode belongs to a process and not to a test.
    code = (
        "from ghost_ray.cluster.ray_interfaces import token_mode, without_token\n"
        "with without_token():\n"
        "    assert not token_mode()\n"
        "assert token_mode()\n"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "RAY_AUTH_MODE": "token"}, check=True)


def test_a_cluster_that_does_not_answer_says_nothing_about_tokens() -> None:
    assert wants_token("127.0.0.1:9") is None
