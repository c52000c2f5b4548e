"""A Ray cluster that scales itself: a head without CPUs, and GPU nodes that an autoscaler starts, late."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.util import get_node_ip_address

from support.clusters import RAY, free_ports
from support.job_processes import kill_marked, wait_until

LATE_SECONDS = 61
# What else the autoscaler reads without asking whether it is there.
_LISTS = ("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands")
_LISTS += tuple(f"{who}_{what}" for who in ("head", "worker") for what in ("setup_commands", "start_ray_commands"))
_EMPTY: dict[str, Any] = {**{name: [] for name in _LISTS}, "auth": {}, "file_mounts": {}, "docker": {}}
_MARK = "GHOST_RAY_TEST_CLUSTER"
# For other processes than that of the tests: one that has joined this cluster could not start a Ray with tokens.
NO_TOKENS = {"RAY_AUTH_MODE": "disabled"}
_REQUESTS = """
import json, ray, sys
from ray.experimental.internal_kv import _internal_kv_get
ray.init(address=sys.argv[1], log_to_driver=False)
asked = json.loads(_internal_kv_get("autoscaler_resource_request") or b"[]")
groups = [group["state"] for group in ray.util.placement_group_table().values() if group["state"] != "REMOVED"]
report = json.loads(_internal_kv_get("__autoscaling_status") or b"{}").get("load_metrics_report", {})
print(json.dumps([*asked, *groups, *report.get("resource_demand", []), *report.get("pg_demand", [])]))
"""
NOTES = "GHOST_RAY_TEST_NOTES"  # where a network leaves the names of the nodes that it ran on


class LateNodes(FakeMultiNodeProvider):
    """Further raylets on this machine, each more than a minute after it was asked for, as those of a cloud are."""

    def create_node_with_resources_and_labels(self, *arguments: Any) -> None:
        time.sleep(LATE_SECONDS)
        super().create_node_with_resources_and_labels(*arguments)


@dataclass(frozen=True)
class Scaling:
    """How to reach the cluster, and where its networks leave their notes."""

    address: str
    notes: Path

    def requests(self) -> list[Any]:
        """What the autoscaler is still asked for: by request, by placement groups, by what waits for a place."""
        command = [sys.executable, "-c", _REQUESTS, self.address]
        asked = subprocess.run(command, env={**os.environ, **NO_TOKENS}, capture_output=True, text=True, check=True)
        found: list[Any] = json.loads(asked.stdout.splitlines()[-1])
        return found


def _scales(folder: str) -> bool:
    """Whether the autoscaler has looked at the cluster for the first time."""
    logs = Path(folder, "r").glob("session_2*/logs/monitor.log")
    return any("Autoscaler status" in log.read_text() for log in logs)


@contextlib.contextmanager
def scaling_cluster(most_gpu_nodes: int = 2) -> Iterator[Scaling]:
    """Start the head and its autoscaler; end them, and every node that came, by a mark in their environment."""
    mark = secrets.token_hex(8)
    # Ray puts sockets below its folder, and their paths may not be long.
    with tempfile.TemporaryDirectory(prefix="ga-", ignore_cleanup_errors=True) as folder:
        notes = Path(folder) / "notes"
        notes.mkdir()
        port, dashboard = free_ports(2)
        address = f"{get_node_ip_address()}:{port}"  # what a driver makes of 127.0.0.1 as well
        worker = {"resources": {"CPU": 1, "GPU": 1, "object_store_memory": 150_000_000}, "node_config": {}}
        provider = {"type": "external", "module": f"{__name__}.LateNodes", "gcs_address": address}
        config = {
            **_EMPTY,
            "cluster_name": "late",
            "file_mounts_sync_continuously": False,
            "max_workers": most_gpu_nodes,
            "idle_timeout_minutes": 30,
            "upscaling_speed": 10.0,
            "provider": {**provider, "launch_multiple": True},
            "head_node_type": "ray.head.default",
            "available_node_types": {
                "ray.head.default": {"resources": {"CPU": 0}, "max_workers": 0, "node_config": {}},
                "gpu": {**worker, "min_workers": 0, "max_workers": most_gpu_nodes},
            },
        }
        (Path(folder) / "autoscaler.yaml").write_text(json.dumps(config))
        command = [RAY, "start", "--head", "--block", "--num-cpus", "0", "--num-gpus", "0", "--port", str(port)]
        command += ["--temp-dir", f"{folder}/r", "--object-store-memory", "150000000"]
        command += ["--dashboard-port", str(dashboard), "--autoscaling-config", f"{folder}/autoscaler.yaml"]
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            **NO_TOKENS,
            "RAY_FAKE_CLUSTER": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "AUTOSCALER_UPDATE_INTERVAL_S": "2",
            _MARK: mark,
            NOTES: str(notes),
        }
        log = Path(folder) / "head.log"
        with open(log, "w") as to:
            head = subprocess.Popen(command, env=variables, stdout=to, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait_until(lambda: _scales(folder) or head.poll() is not None, 180, every=0.5)
            assert head.poll() is None, log.read_text()
            yield Scaling(address, notes)
        finally:
            kill_marked(_MARK, mark)
            head.wait(30)
