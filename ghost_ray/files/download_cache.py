"""Local copies of remote files, downloaded once per machine, and which version of a remote file there is now."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from ghost_ray.errors import InputError, JobFailed, Unreachable, redact
from ghost_ray.files.paths import is_local, resolve
from ghost_ray.files.storage_errors import reaching

_CHUNK = 64 << 20
_VERSION_FIELDS = ("etag", "content-md5", "generation", "last-modified")
_REPOSITORY = re.compile(r"hf[-_]hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")  # of the Hugging Face hub


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
        if filesystem.type_name.startswith("py::"):  # fsspec has its own identifier of a version
            facts.append(filesystem.handler.fs.ukey(path))
        else:
            with filesystem.open_input_file(path) as handle:
                metadata = handle.metadata() or {}
            facts += sorted((name, metadata[name]) for name in metadata if name.lower() in _VERSION_FIELDS)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def hub_version(model: str) -> str | None:
    """The commit that ``hf-hub:OWNER/NAME[@REVISION]`` stands for now; None for other names, and if it is unknown.

    One small request. Without an answer, the commit that this machine has a copy of, as loading it would take.
    """
    match = _REPOSITORY.fullmatch(model)
    if match is None:
        return None
    from huggingface_hub import HfApi, constants

    repository, revision = match[1], match[2]
    with contextlib.suppress(Exception):  # sockets, HTTP and JSON each have their own types
        return HfApi().model_info(repository, revision=revision, timeout=10).sha
    folder = f"models--{repository.replace('/', '--')}"
    with contextlib.suppress(OSError), open(f"{constants.HF_HUB_CACHE}/{folder}/refs/{revision or 'main'}") as handle:
        return handle.read().strip() or None
    return None


def local_copy(uri: str, field: str) -> str:
    """The local path of a file: its own, or that of a copy in the user's cache, which is downloaded if needed.

    Processes that need it at the same time wait for the first of them. Only the newest version of each file is kept.
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
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):  # another user could have put anything there
        raise JobFailed(f"{cache} is not a folder of this user — set XDG_CACHE_HOME to one of your own")
    return cache
