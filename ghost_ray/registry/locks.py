"""One holder at a time of a named lock below a registry's root.

On a local file system the lock is an ``flock``: it ends with its process, however that ends. An object store has no
such thing through pyarrow, nor a conditional write, so every contender writes a claim of its own and then lists the
claims: who sees no other holds the lock, everybody else withdraws. Two can never both hold it, since of two claims
the later writer lists the earlier one; that needs listings that show every finished write, which S3, GCS and Azure
promise. A holder renews its claim; one not renewed for five minutes, by the store's own clock, is taken for dead, and
one of this very machine as soon as its process is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import random
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from pyarrow import fs

from ghost_ray.errors import GhostRayError, InputError, JobFailed, one_line
from ghost_ray.files import is_local, join, read_json, redact, resolve, write_json
from ghost_ray.manifest import now

_FOLDER = ".locks"
_RENEW_SECONDS = 60.0
_EXPIRY_SECONDS = 300.0


class Busy(GhostRayError):
    """Somebody else holds the lock; nothing was changed and the same command may be run later."""


class Lock(Protocol):
    """A lock being held."""

    def check(self) -> None:
        """Raise JobFailed where the lock was lost, before something is published on the strength of it."""


@contextlib.contextmanager
def hold(root: str, name: str, *, wait: float = 0.0, **about: Any) -> Iterator[Lock]:
    """Hold the lock ``name`` of ``root`` for the block.

    Parameters
    ----------
    wait : float
        Seconds to try for before raising :class:`Busy`. On an object store two contenders at the same moment both
        step back, so some seconds are needed for one of them to get it.
    about : str
        What others are told of the holder, beside host, process and time.
    """
    about = {"host": socket.gethostname(), "pid": os.getpid(), "machine": _machine(), "since": now(), **about}
    lock = _FileLock(root, name) if is_local(root) else _ClaimLock(root, name)
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


def holder(root: str, name: str) -> dict[str, Any] | None:
    """What is known of the holder of a lock, or None where nobody holds it."""
    return (_FileLock(root, name) if is_local(root) else _ClaimLock(root, name)).holder()


def describe(about: dict[str, Any] | None) -> str:
    """A holder in words."""
    if not about:
        return "it has just begun"
    known = {key: one_line(about[key], 80) for key in ("host", "pid", "since", "job") if about.get(key)}
    return ", ".join(f"{key} {value}" for key, value in known.items())


class _FileLock:
    def __init__(self, root: str, name: str) -> None:
        self._root = root
        self._path = os.path.join(resolve(root)[1], _FOLDER, name)
        self._file: int | None = None

    def take(self, about: dict[str, Any]) -> bool:
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            problem = f"cannot be written: {one_line(error.strerror)}"
            raise InputError("registry", self._root, problem, "choose a folder you may write to") from None
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

    def holder(self) -> dict[str, Any] | None:
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


class _ClaimLock:
    def __init__(self, root: str, name: str) -> None:
        self._root = root
        self._folder = join(root, _FOLDER, name)
        self._own = f"{re.sub(r'[^A-Za-z0-9-]', '-', socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}.json"
        self._about: dict[str, Any] = {}
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def take(self, about: dict[str, Any]) -> bool:
        self._about = about
        try:
            write_json(join(self._folder, self._own), about)
            free = not self._others()
        except OSError as error:
            problem = f"cannot be written: {one_line(error)}"
            raise InputError("registry", redact(self._root), problem, "check the bucket and its permissions") from None
        if not free:
            self._withdraw(self._own)
            return False
        self._renewer = threading.Thread(target=self._renew, name="ghost-ray-lock", daemon=True)
        self._renewer.start()
        return True

    def check(self) -> None:
        if self._own not in {claim.base_name for claim in self._claims()}:
            raise JobFailed(f"the lock on {redact(self._root)} was lost, nothing was published — run the command again")

    def release(self) -> None:
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        self._withdraw(self._own)

    def holder(self) -> dict[str, Any] | None:
        for claim in self._claims():
            with contextlib.suppress(OSError, ValueError):
                found = read_json(join(self._folder, claim.base_name))
                if isinstance(found, dict) and not _has_died(found):
                    return found
        return None

    def _renew(self) -> None:
        while not self._stop.wait(_RENEW_SECONDS):
            # A renewal that fails is tried again; the holder notices in `check` if others gave it up meanwhile.
            with contextlib.suppress(OSError):
                if self._own in {claim.base_name for claim in self._claims()}:
                    write_json(join(self._folder, self._own), self._about)

    def _others(self) -> list[fs.FileInfo]:
        claims = self._claims()
        # The newest claim tells the store's own time: no machine's clock is asked.
        present = max(claim.mtime for claim in claims)
        alive = []
        for claim in claims:
            if claim.base_name == self._own:
                continue
            if (present - claim.mtime).total_seconds() > _EXPIRY_SECONDS or self._is_dead(claim.base_name):
                self._withdraw(claim.base_name)
            else:
                alive.append(claim)
        return alive

    def _is_dead(self, name: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            about = read_json(join(self._folder, name))
            return isinstance(about, dict) and _has_died(about)
        return False

    def _claims(self) -> list[fs.FileInfo]:
        filesystem, path = resolve(self._folder)
        listing = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [info for info in listing if info.type == fs.FileType.File]

    def _withdraw(self, name: str) -> None:
        filesystem, path = resolve(join(self._folder, name))
        with contextlib.suppress(OSError):
            filesystem.delete_file(path)


def _has_died(about: dict[str, Any]) -> bool:
    """Whether a holder was of this very machine and its process is gone: a killed refit is followed at once."""
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


def _mapping(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
