"""One holder at a time of a place: an ``flock`` on a local file system, a lease on an object store.

An ``flock`` ends with its process, however that ends. A lease is one small object, created and replaced only by
conditional writes, so that the store admits one of several contenders. A holder renews its lease. A lease not renewed
for five minutes, by the store's own clock, is considered dead; a lease of the same machine is dead as soon as its
process has ended.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import functools
import json
import os
import socket
import threading
import time
from typing import Protocol, TypedDict, cast

from ghost_ray.errors import GhostRayError, InputError, JobFailed, one_line, redact
from ghost_ray.files.compare_and_swap import Changed, Snapshot, read_snapshot, remove, swap, time_at, written_at
from ghost_ray.files.paths import is_local, resolve
from ghost_ray.files.storage_errors import reaching

RENEW_SECONDS = 60.0
EXPIRY_SECONDS = 300.0
_TRIES = 100  # to take a file that others remove at the same moment


class Busy(GhostRayError):
    """Another process holds the place; nothing was changed and the same command may be run later."""


class Holder(TypedDict, total=False):
    """What is known about the holder of a place."""

    host: str
    pid: int
    machine: str | None  # names the processes that `pid` is one of
    since: str
    job: str
    renewed: int
    released: str


class Claim(Protocol):
    """A place that can be held."""

    def take(self, about: Holder) -> bool:
        """Hold the place; False if another process does."""

    def check(self) -> None:
        """Raise JobFailed if the place was lost, before anything is published under it."""

    def release(self) -> None:
        """Let others have the place."""

    def holder(self) -> Holder | None:
        """What is known about the holder, or None if the place is free."""


def claim_on(where: str, held: str, field: str, *, kept: bool = True, probed: bool = True) -> Claim:
    """A claim recorded in the file ``where``.

    Parameters
    ----------
    held : str
        The place that is held, for messages.
    field : str
        The setting that names the place.
    kept : bool
        Leave the object in a store on release: nobody can then delete another's claim.
    probed : bool
        Refuse a store that ignores the conditions of writes; this takes a few requests.
    """
    return FileClaim(where, held, field) if is_local(where) else Lease(where, held, field, kept=kept, probed=probed)


def this_process(job: str = "") -> Holder:
    """What others see of this process as a holder."""
    return Holder(host=socket.gethostname(), pid=os.getpid(), machine=_machine(), since=_now(), job=job)


def describe(about: Holder | None) -> str:
    """A holder in words."""
    if not about:
        return "it has just begun"
    shown = {"host": about.get("host"), "pid": about.get("pid"), "since": about.get("since"), "job": about.get("job")}
    known = {key: one_line(value, 80) for key, value in shown.items() if value}
    return ", ".join(f"{key} {value}" for key, value in known.items())


class FileClaim:
    """A claim on a local file system; the file is removed on release."""

    def __init__(self, where: str, held: str, field: str) -> None:
        self._path, self._held, self._field = resolve(where)[1], held, field
        self._file: int | None = None

    def take(self, about: Holder) -> bool:
        for _ in range(_TRIES):
            try:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                problem = f"cannot be written: {one_line(error.strerror)}"
                raise InputError(self._field, self._held, problem, "choose a folder that you can write to") from None
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return False
            if _is_at(handle, self._path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(about).encode(), 0)
                self._file = handle
                return True
            os.close(handle)  # its last holder removed it after it was opened
        return False

    def check(self) -> None:
        """Nothing to check: the system keeps an flock until the process ends."""

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = None

    def holder(self) -> Holder | None:
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _mapping(os.pread(handle, 65536, 0)) or Holder(job="unknown")
        finally:
            os.close(handle)
        return None


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


class Lease:
    """A claim on an object store."""

    def __init__(self, where: str, held: str, field: str, *, kept: bool, probed: bool) -> None:
        self._where, self._place, self._field, self._kept, self._probed = where, held, field, kept, probed
        self._about: Holder = {}
        self._held: Snapshot | None = None
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def take(self, about: Holder) -> bool:
        self._about = about
        with reaching(self._place, self._field):
            found = read_snapshot(self._where)
            if found is not None and not self._is_free(found):
                return False
            try:
                self._held = swap(self._where, _lease(about), found, probed=self._probed)
            except Changed:
                return False
        self._stop.clear()
        self._renewer = threading.Thread(target=self._renew, name="ghost-ray-lock", daemon=True)
        self._renewer.start()
        return True

    def check(self) -> None:
        with self._guard, reaching(self._place, self._field):
            if not self._is_held():
                lost = f"the lock on {redact(self._place)} was lost, nothing was published"
                raise JobFailed(f"{lost} — run the command again")

    def release(self) -> None:
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        with contextlib.suppress(OSError, GhostRayError):
            if self._kept:
                # A delete cannot depend on who holds the lease by then.
                self.replace({**self._about, "released": _now()})
            elif self._is_held():
                remove(self._where)
        self._held = None

    def holder(self) -> Holder | None:
        found = read_snapshot(self._where)
        if found is None:
            return None
        about = _mapping(found.data)
        if about.get("released") or _has_died(about):
            return None
        # Only for people to read, so this machine's clock is good enough.
        try:
            age = datetime.datetime.now(datetime.UTC) - written_at(self._where)
        except FileNotFoundError:
            return None  # released meanwhile
        return about if age.total_seconds() < EXPIRY_SECONDS else None

    def _is_held(self) -> bool:
        found = read_snapshot(self._where)
        return self._held is not None and found is not None and found.tag == self._held.tag

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            # A renewal that fails is retried; `check` detects if another process took the lease meanwhile.
            with contextlib.suppress(OSError, GhostRayError):
                self.replace(self._about)

    def replace(self, about: Holder) -> None:
        """Replace the description of the holder, if this is still the holder."""
        with self._guard:
            if self._held is not None:
                try:
                    self._held = swap(self._where, _lease(about), self._held, probed=self._probed)
                except Changed:
                    self._held = None

    def _is_free(self, found: Snapshot) -> bool:
        about = _mapping(found.data)
        if about.get("released") or _has_died(about):
            return True
        try:
            age = time_at(self._where) - written_at(self._where)
        except FileNotFoundError:
            return False  # released meanwhile; the next attempt succeeds
        return age.total_seconds() > EXPIRY_SECONDS


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _lease(about: Holder) -> bytes:
    # Different each time: a store's tag may be that of the bytes, and a renewed lease must not look like the old one.
    return json.dumps({**about, "renewed": time.time_ns()}).encode()


def _has_died(about: Holder) -> bool:
    """Whether a holder was on this machine and its process has ended: then a killed job can be resumed at once."""
    machine, process = _machine(), about.get("pid")
    known = machine is not None and about.get("machine") == machine and isinstance(process, int)
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
