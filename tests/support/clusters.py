"""Ray clusters for single tests: one with token authentication, and one of several raylets to be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PORTS = ("port", "dashboard-port", "ray-client-server-port", "dashboard-agent-listen-port", "metrics-export-port")
RAY = str(Path(sys.executable).with_name("ray"))  # that of the tests, whatever the PATH says


@dataclass(frozen=True)
class Cluster:
    """How to reach the cluster."""

    dashboard: str  # http://127.0.0.1:PORT
    environment: dict[str, str]
    token: str
    metrics: str = ""  # where Prometheus would scrape
    gcs: str = ""  # what a driver joins

    def ray(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the ``ray`` command line against the cluster."""
        return self.run("ray", *words)

    def run(self, *words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command that finds the cluster and its token in the environment."""
        return subprocess.run(
            words,
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

    @contextlib.contextmanager
    def scraping(self, prefix: str) -> Iterator[set[str]]:
        """The names of all metrics beginning with ``prefix`` that are exported while the block runs.

        Beside each, it with each of its labels: ``NAME by LABEL``.
        """
        seen: set[str] = set()
        stop = threading.Event()

        def scrape() -> None:
            while not stop.wait(1):
                with contextlib.suppress(OSError), urllib.request.urlopen(self.metrics, timeout=10) as answer:
                    lines = answer.read().decode().splitlines()
                    for line in (line for line in lines if line.startswith(prefix)):
                        name = re.split(r"[{ ]", line)[0]
                        seen.update([name, *(f"{name} by {label}" for label in re.findall(r'(\w+)="', line))])

        thread = threading.Thread(target=scrape, daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            stop.set()
            thread.join(15)

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
        here = "http://127.0.0.1:"
        cluster = Cluster(
            dashboard=f"{here}{ports['dashboard-port']}",
            environment=environment,
            token=token_file.read_text().strip(),
            metrics=f"{here}{ports['metrics-export-port']}/metrics",
            gcs=f"127.0.0.1:{ports['port']}",
        )
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
            # The dashboard answers before there is an agent that starts jobs.
            answers = cluster.request("/api/jobs/", cluster.token) == 200
            if answers and cluster.ray("job", "submit", "--", "true").returncode == 0:
                return
        time.sleep(1)
    raise TimeoutError(log.read_text())


def _fill(size: int) -> list[Any]:
    """Objects of more than ``size`` bytes, as references."""
    import ray

    return [ray.put(bytes(20_000_000)) for _ in range(1 + size // 20_000_000)]


class Raylets:
    """A cluster of several raylets on this machine, one CPU each."""

    def __init__(self, count: int, object_store_bytes: int) -> None:
        import ray
        from ray.cluster_utils import Cluster as RayCluster

        assert not ray.is_initialized(), "needs a process of its own"
        self._object_store_bytes = object_store_bytes
        self._node_args = {"num_cpus": 1, "object_store_memory": object_store_bytes}
        # A node that is gone fails the next check; one that is only slow has ten seconds for each.
        checks = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
        head = {**self._node_args, "include_dashboard": False, "_system_config": checks}
        self._cluster = RayCluster(initialize_head=True, head_node_args=head)
        for _ in range(count - 1):
            self.add()
        self._cluster.wait_for_nodes()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, **more: int) -> Any:
        """One more node, with the resources that all have and ``more``."""
        return self._cluster.add_node(**self._node_args, **more)

    def raylet(self, node: Any) -> int:
        """The process of a node; what works there is below it."""
        return int(node.all_processes["raylet"][0].process.pid)

    @property
    def nodes(self) -> list[Any]:
        """All nodes, the head first."""
        head = self._cluster.head_node
        return [head, *(node for node in self._cluster.list_all_nodes() if node is not head)]

    def alive(self) -> int:
        """How many nodes the head knows of, those that joined by themselves included."""
        return len(self._cluster.global_state._live_node_ids())

    def kill(self, node: Any) -> None:
        """Kill the node at once."""
        self._cluster.remove_node(node, allow_graceful=False)

    def idle(self, seconds: float = 60) -> bool:
        """Whether no work is running any more, after a short wait."""
        import ray

        ray.init(address=self.address, log_to_driver=False)
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if ray.available_resources().get("CPU") == ray.cluster_resources().get("CPU"):
                    return True
                time.sleep(0.5)
            return False
        finally:
            ray.shutdown()

    @contextlib.contextmanager
    def full_object_store(self) -> Iterator[None]:
        """Every node's object store holds more than fits, as another job's objects would, for the block."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray.init(address=self.address, log_to_driver=False)
        try:
            here = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes() if node["Alive"]]
            fill = ray.remote(num_cpus=0)(_fill)
            size = self._object_store_bytes
            held = ray.get([fill.options(scheduling_strategy=place).remote(size) for place in here])
            yield
            assert len(held) == len(here)
        finally:
            ray.shutdown()

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def several_raylets(count: int = 3, object_store_bytes: int = 150_000_000) -> Iterator[Raylets]:
    """A head and ``count`` − 1 further nodes."""
    raylets = Raylets(count, object_store_bytes)
    try:
        yield raylets
    finally:
        raylets.shutdown()


@contextlib.contextmanager
def counted_gpus(count: int) -> Iterator[str]:
    """A node of two CPUs and GPUs that are only counted; gives its address."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    assert not ray.is_initialized(), "needs a process of its own"
    head = {"num_cpus": 2, "num_gpus": count, "include_dashboard": False}
    made = RayCluster(initialize_head=True, head_node_args=head)
    try:
        yield str(made.address)
    finally:
        made.shutdown()
