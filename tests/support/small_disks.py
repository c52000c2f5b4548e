"""A job on a disk that is full, and the same job again when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.job_processes import Ended

# The disk is a tmpfs in a mount namespace of its own, which root may create, or a user who may be root of a user
# namespace. It ends with its last process, so both runs and the copy are made within it.
_SCRIPT = """
set -e
disk=$1 size=$2 saved=$3; shift 3
mount -t tmpfs -o size="${size}k" tmpfs "$disk"
set +e
"$@" >"$saved/full.out" 2>"$saved/full.err"; echo $? >"$saved/full.code"
set -e
mount -o remount,size=1g "$disk"
set +e
"$@" >"$saved/freed.out" 2>"$saved/freed.err"; echo $? >"$saved/freed.code"
cp -r "$disk/." "$saved/"
"""


@dataclass(frozen=True)
class Runs:
    full: Ended
    freed: Ended


def on_a_small_disk(disk: Path, kibibytes: int, words: list[str], saved: Path) -> Runs:
    """Run ``ghost-ray WORDS`` with ``disk`` a file system of that size, then with a large one; what is there at the
    end is copied to ``saved``."""
    disk.mkdir()
    saved.mkdir()
    namespace = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount namespace may not be made here")
    command = [*namespace, "sh", "-c", _SCRIPT, "sh", str(disk), str(kibibytes), str(saved)]
    command += [sys.executable, "-m", "ghost_ray", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    ended = []
    for name in ("full", "freed"):
        parts = {suffix: saved / f"{name}.{suffix}" for suffix in ("code", "out", "err")}
        content = {suffix: path.read_text() for suffix, path in parts.items()}
        ended.append(Ended(int(content["code"]), content["out"], content["err"]))
        for path in parts.values():
            path.unlink()
    return Runs(*ended)
