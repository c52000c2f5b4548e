"""Ten thousand broken inputs of each kind: read or refused in one line, quickly and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.fuzz_targets import TARGETS
from support.fuzzing import LIMIT_SECONDS

COUNT = 10_000
GIBIBYTE = 1 << 30


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_but_a_result_or_one_line(target: str, tmp_path: Path) -> None:
    # A process of its own: what it allocates is nobody else's, and it may be killed.
    command = [sys.executable, "-m", "support.fuzzing", target, "--count", str(COUNT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert not found["findings"], "\n".join(found["findings"][:5])
    assert found["read"] + found["refused"] == COUNT
    assert found["read"] > COUNT / 100  # not all of them break at the first byte
    assert found["refused"] > COUNT / 4
    assert found["slowest_seconds"] < LIMIT_SECONDS
    assert found["grown_bytes"] < GIBIBYTE
    assert not list(tmp_path.iterdir())
