"""Ctrl-C beside a local Ray ends Ray's processes, and no others of the same program."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os, subprocess, time
from ghost_ray.cluster import ray_session
from ghost_ray.cluster.session import _descendants
from ghost_ray.config import RayJobConfig

before = subprocess.Popen(["sleep", "600"])
try:
    with ray_session(RayJobConfig(num_cpus=1)):
        during = subprocess.Popen(["sleep", "600"])
        rays = [process for process in _descendants(os.getpid()) if process not in (before.pid, during.pid)]
        raise KeyboardInterrupt
except KeyboardInterrupt:
    for _ in range(100):
        running = [process for process in rays if os.path.exists(f"/proc/{process}/exe")]
        running = [p for p in running if open(f"/proc/{p}/stat").read().rpartition(")")[2].split()[0] != "Z"]
        if not running:
            break
        time.sleep(0.1)
    print(len(rays) > 1, len(running), before.poll(), during.poll())
finally:
    before.kill(), during.kill()
"""


def test_only_rays_own_processes_are_killed() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == ["True", "0", "None", "None"], done.stderr
