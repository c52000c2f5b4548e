"""A Ray cluster of a test's own, with token authentication, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_PORTS = ("port", "dashboard-port", "ray-client-server-port", "dashboard-agent-listen-port", "metrics-export-port")


@dataclass(frozen=True)
class Cluster:
    """How to reach the cluster."""

    dashboard: str  # http://127.0.0.1:PORT
    environment: dict[str, str]
    token: str

    def ray(self, *words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run the ``ray`` command line against the cluster."""
        return subprocess.run(
            ["ray", *words],
            cwd=ROOT,
            env={**self.environment, "RAY_ADDRESS": self.dashboard},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def submit(self, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """``ray job submit --working-dir . -- python …``."""
        return self.ray("job", "submit", "--working-dir", ".", *options, "--", "python", *words)

    def request(self, path: str, token: str | None = None) -> int:
        """The HTTP status of a request to the dashboard."""
        try:
            with self._open(path, token) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def job_seconds(self, submission: str) -> float:
        """How long a job ran, from the start of its driver to its end, as the cluster itself measured it."""
        with self._open(f"/api/jobs/{submission}", self.token) as answer:
            job = json.load(answer)
        return float(job["end_time"] - job["start_time"]) / 1000

    def _open(self, path: str, token: str | None) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return urllib.request.urlopen(urllib.request.Request(self.dashboard + path, headers=headers))


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextlib.contextmanager
def token_cluster(num_cpus: int = 2) -> Iterator[Cluster]:
    """Start a head in its own process group, and end exactly that group afterwards."""
    # Ray puts sockets below its folder, and their paths may not be long.
    with tempfile.TemporaryDirectory(prefix="gr-", ignore_cleanup_errors=True) as folder:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            # As in an activated environment: the head resolves a job's `python` from its own path.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        at_home = {**environment, "HOME": folder}
        subprocess.run(["ray", "get-auth-token", "--generate"], env=at_home, capture_output=True, check=True)
        token_file = Path(folder) / ".ray" / "auth_token"
        environment["RAY_AUTH_TOKEN_PATH"] = str(token_file)
        ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        command = ["ray", "start", "--head", "--block", "--num-cpus", str(num_cpus), "--dashboard-host", "127.0.0.1"]
        command += ["--node-ip-address", "127.0.0.1", "--temp-dir", f"{folder}/r", "--object-store-memory", "200000000"]
        command += [word for name, port in ports.items() for word in (f"--{name}", str(port))]
        with open(Path(folder) / "head.log", "w") as log:
            head = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        cluster = Cluster(f"http://127.0.0.1:{ports['dashboard-port']}", environment, token_file.read_text().strip())
        try:
            _wait(cluster, head, Path(folder) / "head.log")
            yield cluster
        finally:
            head.send_signal(signal.SIGTERM)  # --block takes the daemons down with it
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)


def _wait(cluster: Cluster, head: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert head.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            if cluster.request("/api/jobs/", cluster.token) == 200:
                return
        time.sleep(1)
    raise TimeoutError(log.read_text())
