"""One holder at a time of a named lock below a registry's root.

On a local file system the lock is an ``flock``: it ends with its process, however that ends. On an object store it is
a lease: one small object, created and replaced only by conditional writes, so that the store admits one of several
contenders. A holder renews its lease. A lease not renewed for five minutes, by the store's own clock, is considered
dead; a lease of the same machine is dead as soon as its process has ended.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import functools
import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Protocol, TypedDict, cast

from ghost_ray.errors import GhostRayError, InputError, JobFailed, one_line, redact
from ghost_ray.files import is_local, join, reaching, resolve
from ghost_ray.files.conditional import Changed, Seen, look, swap, time_at, written_at
from ghost_ray.files.manifest import now

_FOLDER = ".locks"
_RENEW_SECONDS = 60.0
_EXPIRY_SECONDS = 300.0


class Busy(GhostRayError):
    """Another process holds the lock; nothing was changed and the same command may be run later."""


class Holder(TypedDict, total=False):
    """What is known about the holder of a lock."""

    host: str
    pid: int
    machine: str | None  # names the processes that `pid` is one of
    since: str
    job: str
    renewed: int
    released: str


class Lock(Protocol):
    """A lock being held."""

    def check(self) -> None:
        """Raise JobFailed if the lock was lost, before anything is published under it."""


@contextlib.contextmanager
def hold(root: str, name: str, *, wait: float = 0.0, job: str = "") -> Iterator[Lock]:
    """Hold the lock ``name`` of ``root`` for the block.

    Parameters
    ----------
    wait : float
        Seconds to wait before raising :class:`Busy`.
    job : str
        What others see of the holder, beside host, process and time.
    """
    about = Holder(host=socket.gethostname(), pid=os.getpid(), machine=_machine(), since=now(), job=job)
    lock = _FileLock(root, name) if is_local(root) else _Lease(root, name)
    deadline = time.monotonic() + wait
    while not lock.take(about):
        if time.monotonic() >= deadline:
            raise Busy(
                f"another {name} works on {redact(root)} now ({describe(holder(root, name))}); run it again later"
            )
        time.sleep(random.uniform(0.1, 0.6))
    try:
        yield lock
    finally:
        lock.release()


def holder(root: str, name: str) -> Holder | None:
    """What is known about the holder of a lock, or None if it is free."""
    return (_FileLock(root, name) if is_local(root) else _Lease(root, name)).holder()


def describe(about: Holder | None) -> str:
    """A holder in words."""
    if not about:
        return "it has just begun"
    told = {"host": about.get("host"), "pid": about.get("pid"), "since": about.get("since"), "job": about.get("job")}
    known = {key: one_line(value, 80) for key, value in told.items() if value}
    return ", ".join(f"{key} {value}" for key, value in known.items())


class _FileLock:
    def __init__(self, root: str, name: str) -> None:
        self._root = root
        self._path = os.path.join(resolve(root)[1], _FOLDER, name)
        self._file: int | None = None

    def take(self, about: Holder) -> bool:
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            problem = f"cannot be written: {one_line(error.strerror)}"
            raise InputError("registry", self._root, problem, "choose a folder that you can write to") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(about).encode(), 0)
        self._file = handle
        return True

    def check(self) -> None:
        """The system keeps an flock for as long as the process lives."""

    def release(self) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def holder(self) -> Holder | None:
        try:
            handle = os.open(self._path, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _mapping(os.pread(handle, 65536, 0))
        finally:
            os.close(handle)
        return None


class _Lease:
    def __init__(self, root: str, name: str) -> None:
        self._root = root
        self._where = join(root, _FOLDER, f"{name}.json")
        self._about: Holder = {}
        self._held: Seen | None = None
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def take(self, about: Holder) -> bool:
        self._about = about
        with reaching(self._root, "registry"):
            found = look(self._where)
            if found is not None and not self._is_free(found):
                return False
            try:
                self._held = swap(self._where, _lease(about), found)
            except Changed:
                return False
        self._renewer = threading.Thread(target=self._renew, name="ghost-ray-lock", daemon=True)
        self._renewer.start()
        return True

    def check(self) -> None:
        with self._guard, reaching(self._root, "registry"):
            found = look(self._where)
            if self._held is None or found is None or found.tag != self._held.tag:
                lost = f"the lock on {redact(self._root)} was lost, nothing was published"
                raise JobFailed(f"{lost} — run the command again")

    def release(self) -> None:
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        # Never deleted: a delete cannot depend on who holds the lease by then.
        with contextlib.suppress(OSError):
            self._replace({**self._about, "released": now()})

    def holder(self) -> Holder | None:
        found = look(self._where)
        if found is None:
            return None
        about = _mapping(found.data)
        if about.get("released") or _has_died(about):
            return None
        # Only for people to read, so this machine's clock is good enough.
        age = datetime.datetime.now(datetime.UTC) - written_at(self._where)
        return about if age.total_seconds() < _EXPIRY_SECONDS else None

    def _renew(self) -> None:
        while not self._stop.wait(_RENEW_SECONDS):
            # A renewal that fails is retried; `check` detects if another process took the lease meanwhile.
            with contextlib.suppress(OSError):
                self._replace(self._about)

    def _replace(self, about: Holder) -> None:
        with self._guard:
            if self._held is not None:
                try:
                    self._held = swap(self._where, _lease(about), self._held)
                except Changed:
                    self._held = None

    def _is_free(self, found: Seen) -> bool:
        about = _mapping(found.data)
        if about.get("released") or _has_died(about):
            return True
        age = time_at(self._root) - written_at(self._where)
        return age.total_seconds() > _EXPIRY_SECONDS


def _lease(about: Holder) -> bytes:
    # Different each time: a store's tag may be that of the bytes, and a renewed lease must not look like the old one.
    return json.dumps({**about, "renewed": time.time_ns()}).encode()


def _has_died(about: Holder) -> bool:
    """Whether a holder was on this machine and its process has ended: then a killed refit can be resumed at once."""
    here, process = _machine(), about.get("pid")
    known = here is not None and about.get("machine") == here and isinstance(process, int)
    return known and not os.path.exists(f"/proc/{process}")


@functools.cache
def _machine() -> str | None:
    """Names the set of processes that a process id belongs to: this boot of this machine, this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return f"{handle.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _mapping(data: bytes) -> Holder:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return cast(Holder, found) if isinstance(found, dict) else {}
