"""Local copies of remote files: each is downloaded once per machine, by the first process that needs it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from ghost_ray.errors import InputError, JobFailed, Unreachable, redact
from ghost_ray.files.causes import reaching
from ghost_ray.files.paths import is_local, resolve

_CHUNK = 64 << 20
_VERSION_FIELDS = ("etag", "content-md5", "generation", "last-modified")


def version_of(uri: str, field: str) -> str:
    """A string that changes whenever the remote file changes; its content is not downloaded.

    Made of its size, the time of its last change and, if the store gives it, its ETag.
    """
    with reaching(uri, field):
        filesystem, path = resolve(uri, field)
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            problem = "is a folder" if info.type == fs.FileType.Directory else "does not exist"
            raise InputError(field, redact(uri), problem, "name a file")
        facts = [info.size, info.mtime_ns]
        if filesystem.type_name.startswith("py::"):  # through fsspec, which knows best how to distinguish two versions
            facts.append(filesystem.handler.fs.ukey(path))
        else:
            with filesystem.open_input_file(path) as handle:
                said = handle.metadata() or {}
            facts += sorted((name, said[name]) for name in said if name.lower() in _VERSION_FIELDS)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def local_copy(uri: str, field: str) -> str:
    """The local path of a file: its own, or that of a copy in the user's cache, which is downloaded if needed.

    Processes that ask at the same time wait for the first of them. Only the newest version of each remote file is kept.
    """
    if is_local(uri):
        return resolve(uri, field)[1]
    version = version_of(uri, field)
    name = Path(resolve(uri, field)[1]).name
    folder = _cache() / hashlib.sha256(redact(uri).encode()).hexdigest()[:32]
    copy = folder / version[:32] / name
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / "lock"):
            if not copy.exists():
                _fetch(uri, field, copy)
                _remove_others(folder, copy.parent)
    return str(copy)


def _fetch(uri: str, field: str, to: Path) -> None:
    to.parent.mkdir(exist_ok=True)
    partial = to.with_name(f".{to.name}.partial")
    partial.unlink(missing_ok=True)
    with reaching(uri, field):
        filesystem, path = resolve(uri, field)
        size = filesystem.get_file_info(path).size
        with filesystem.open_input_stream(path) as source, open(partial, "xb") as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
        if partial.stat().st_size != size:
            raise Unreachable(f"{field} '{redact(uri)}': {partial.stat().st_size:,} of {size:,} bytes arrived")
    os.replace(partial, to)


def _remove_others(folder: Path, kept: Path) -> None:
    # A process that has an older version open keeps it.
    for entry in folder.iterdir():
        if entry.is_dir() and entry != kept:
            shutil.rmtree(entry, ignore_errors=True)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with open(lock, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _cache() -> Path:
    """The folder of this user's copies; a temporary folder if the user has no writable home."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.cache")
    cache = Path(home) / "ghost_ray" / "files"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        os.chmod(cache, 0o700)  # weights may be private, whatever folders above are open to
        if os.access(cache, os.W_OK | os.X_OK):
            return cache
    cache = Path(tempfile.gettempdir()) / f"ghost_ray-files-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        cache.mkdir(mode=0o700)
    found = cache.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):  # another user could put anything there
        raise JobFailed(f"{cache} is not a folder of this user — set XDG_CACHE_HOME to one of your own")
    return cache
