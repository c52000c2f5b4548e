"""Locks: an flock on a local folder, a lease on an object store."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.job_processes import wait_until
from support.object_stores import object_store_in_environment

from ghost_ray import registry
from ghost_ray.errors import JobFailed, Unreachable
from ghost_ray.files import claims, compare_and_swap, join
from ghost_ray.files.compare_and_swap import read_snapshot


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with object_store_in_environment(monkeypatch) as store:
        yield f"s3://{store.bucket}"


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "registry") if request.param == "local" else join(request.getfixturevalue("bucket"), "root")


def test_two_cannot_hold_a_lock_and_it_is_free_again_afterwards(root: str) -> None:
    with registry.hold(root, "refit", job="first"):
        with pytest.raises(registry.Busy, match="job first"), registry.hold(root, "refit"):
            pass
        with registry.hold(root, "promotion"):  # another lock: a rollback does not wait for a refit
            pass
    assert registry.holder(root, "refit") is None
    with registry.hold(root, "refit"):
        pass


def test_of_many_contenders_exactly_one_at_a_time_holds_the_lock(root: str) -> None:
    inside, most, done = 0, 0, 0
    guard = threading.Lock()

    def contend() -> None:
        nonlocal inside, most, done
        with registry.hold(root, "promotion", wait=60):
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.05)
            with guard:
                inside -= 1
                done += 1

    threads = [threading.Thread(target=contend) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 5)


def test_a_local_lock_ends_with_its_killed_process(tmp_path: Path) -> None:
    code = f"from ghost_ray import registry; import time\nwith registry.hold({str(tmp_path)!r}, 'refit'):\n"
    code += " print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    about = registry.holder(str(tmp_path), "refit")
    assert about is not None
    assert about["pid"] == process.pid
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert registry.holder(str(tmp_path), "refit") is None
    with registry.hold(str(tmp_path), "refit"):
        pass


def test_a_living_holder_renews_its_lease(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = join(bucket, "renewal")
    monkeypatch.setattr(claims, "RENEW_SECONDS", 0.05)
    with registry.hold(root, "refit") as lock:
        first = read_snapshot(join(root, ".locks", "refit.json"))
        assert first is not None
        wait_until(lambda: read_snapshot(join(root, ".locks", "refit.json")) != first)
        lock.check()
        with pytest.raises(registry.Busy), registry.hold(root, "refit"):
            pass


@pytest.mark.parametrize("error", [OSError("connection refused"), Unreachable("the store cannot be reached")])
def test_a_lease_outlasts_a_renewal_that_fails(error: Exception, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, renewals = join(bucket, "away"), iter([error])

    def swap(*arguments: Any, **options: Any) -> Any:
        if (failure := next(renewals, None)) is not None:
            raise failure
        return compare_and_swap.swap(*arguments, **options)

    monkeypatch.setattr(claims, "RENEW_SECONDS", 0.05)
    with registry.hold(root, "refit") as lock:
        monkeypatch.setattr(claims, "swap", swap)
        first = read_snapshot(join(root, ".locks", "refit.json"))
        wait_until(lambda: read_snapshot(join(root, ".locks", "refit.json")) != first)
        assert next(renewals, None) is None
        lock.check()


def test_who_lost_the_lease_does_not_take_it_back_or_give_it_up(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = join(bucket, "taken")
    where = join(root, ".locks", "refit.json")
    asleep = claims.Lease(where, root, "registry", kept=True, probed=True)
    assert asleep.take({"job": "asleep", "host": "elsewhere"})
    monkeypatch.setattr(claims, "EXPIRY_SECONDS", -1.0)
    awake = claims.Lease(where, root, "registry", kept=True, probed=True)
    assert awake.take({"job": "awake", "host": "elsewhere"})
    monkeypatch.setattr(claims, "EXPIRY_SECONDS", 300.0)
    with pytest.raises(JobFailed, match="lost"):
        asleep.check()
    asleep.replace({"job": "asleep"})
    asleep.release()
    awake.check()
    holder = registry.holder(root, "refit")
    assert holder is not None
    assert holder["job"] == "awake"
    awake.release()
    assert registry.holder(root, "refit") is None
