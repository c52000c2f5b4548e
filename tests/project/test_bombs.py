"""Small inputs that ask for gigabytes or minutes: each costs less than 1 GiB and ten seconds, and is told in a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.bombs import BOMBS
from support.fuzzing import LIMIT_SECONDS

GIBIBYTE = 1 << 30


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_costs_anything(name: str, tmp_path: Path) -> None:
    # A process of its own, which may be killed by what it reads.
    command = [sys.executable, "-m", "support.bombs", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found = json.loads(done.stdout)
    assert any(BOMBS[name][1] in line for line in found["said"]), found
    assert not any("\n" in line for line in found["said"])
    assert found["seconds"] < LIMIT_SECONDS, found
    assert found["grown_bytes"] < GIBIBYTE, found
