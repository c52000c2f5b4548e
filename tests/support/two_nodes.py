"""A cluster of two nodes on this machine, the second of which has a GPU and does not see a folder of the first."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.clusters import RAY, Raylets, several_raylets
from support.job_processes import kill_marked, wait_until

_MARK = "GHOST_RAY_TEST_NODE"
# An empty file system hides the folder, in a mount namespace of the node's own processes.
_SCRIPT = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class TwoNodes:
    """How to reach the cluster, and the folder that its head alone sees."""

    raylets: Raylets
    hidden: Path

    @property
    def address(self) -> str:
        return self.raylets.address


@contextlib.contextmanager
def two_nodes(hidden: Path, **variables: str) -> Iterator[TwoNodes]:
    """Start both; the second has these environment variables."""
    namespace = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount namespace may not be made here")
    mark = secrets.token_hex(8)
    with several_raylets(1) as raylets:
        join = [RAY, "start", "--address", raylets.address, "--block", "--num-cpus", "1"]
        join += ["--num-gpus", "1", "--object-store-memory", "150000000"]  # a GPU that is only counted
        log = hidden.parent / "node.log"
        with open(log, "w") as to:
            node = subprocess.Popen(
                [*namespace, "sh", "-c", _SCRIPT, "sh", str(hidden), *join],
                env={**os.environ, **variables, _MARK: mark},
                stdout=to,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(lambda: raylets.alive() == 2 or node.poll() is not None, every=0.5)
            assert node.poll() is None, log.read_text()
            yield TwoNodes(raylets, hidden)
        finally:
            kill_marked(_MARK, mark)
            node.wait(30)
