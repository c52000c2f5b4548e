"""Paths of every kind (local, s3://, gs://) through pyarrow.fs, and results that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line, redact

MANIFEST = "manifest.json"
_RENAME_EXCHANGE = 2
_MAX_JSON_BYTES = 64 << 20
_MAX_JSON_DEPTH = 64
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")  # of a surrogate pair; Python would let it in and not out


def is_local(uri: str) -> bool:
    """Whether ``uri`` names a path of this machine's file system."""
    return "://" not in uri or uri.startswith("file://")


def resolve(uri: str | os.PathLike[str], field: str = "path") -> tuple[fs.FileSystem, str]:
    """The file system of ``uri`` and the path in it; InputError names ``field`` where there is none."""
    text = os.fspath(uri)
    if not text or "\n" in text or "\0" in text:
        raise InputError(field, text, "is not a path", "give a local path, s3://bucket/prefix or gs://bucket/prefix")
    try:
        if is_local(text):
            return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text.removeprefix("file://")))
        filesystem, path = fs.FileSystem.from_uri(text)
        return filesystem, path.rstrip("/")
    except (pa.ArrowInvalid, OSError, ValueError, NotImplementedError) as error:
        raise InputError(
            field,
            redact(text),
            f"cannot be opened: {one_line(error)}",
            "allowed: a local path, s3://… or gs://…",
        ) from None


def join(uri: str, *parts: str) -> str:
    """``uri`` with ``parts`` below it, in the notation ``uri`` came in."""
    return beside(uri, "".join(f"/{part}" for part in parts))


def beside(uri: str, suffix: str) -> str:
    """``uri`` with ``suffix`` at the end of its name; options of the store, ``?scheme=http``, stay at the very end."""
    place, mark, options = (uri, "", "") if is_local(uri) else uri.partition("?")
    return f"{place.rstrip('/')}{suffix}{mark}{options}"


def name_of(uri: str) -> str:
    """The last part of the place that ``uri`` names."""
    return resolve(uri)[1].rpartition("/")[2]


def kind_of(uri: str) -> str:
    """``file``, ``folder`` or ``nothing``: what lies at ``uri``."""
    filesystem, path = resolve(uri)
    found = filesystem.get_file_info(path).type
    return {fs.FileType.File: "file", fs.FileType.Directory: "folder"}.get(found, "nothing")


def names_in(uri: str) -> list[str]:
    """Names of the files directly in a folder, sorted; empty where the folder does not exist."""
    return _names(uri, fs.FileType.File)


def folders_in(uri: str) -> list[str]:
    """Names of the folders directly in a folder, sorted; empty where the folder does not exist."""
    return _names(uri, fs.FileType.Directory)


def _names(uri: str, kind: fs.FileType) -> list[str]:
    filesystem, path = resolve(uri)
    listing = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted(info.base_name for info in listing if info.type == kind)


@contextlib.contextmanager
def open_input(uri: str) -> Iterator[pa.NativeFile]:
    filesystem, path = resolve(uri)
    with filesystem.open_input_file(path) as handle:
        yield handle


def read_bytes(uri: str, limit: int | None = None) -> bytes:
    """The content of a small file; ValueError where it is larger than ``limit`` bytes."""
    with open_input(uri) as handle:
        size = handle.size()
        if limit is not None and size > limit:
            raise ValueError(f"is {size:,} bytes long, more than the {limit:,} allowed")
        return bytes(handle.read())


def write_bytes(uri: str, data: bytes) -> None:
    """Write a small file in one step: readers see the old content or the new, never a part."""
    filesystem, path = resolve(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            with open(temporary, "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    else:
        with filesystem.open_output_stream(path) as handle:
            handle.write(data)


def read_json(uri: str) -> Any:
    """Parse a JSON file of bounded size and depth; ValueError says in one line what is wrong with it.

    What is read can be written again: no NaN, no infinity, no half of a character.
    """
    data = read_bytes(uri, limit=_MAX_JSON_BYTES)
    try:
        value = json.loads(data, parse_constant=_no_number, parse_float=_finite)
        if _HALF_CHARACTER.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({one_line(error)})") from None
    _refuse_depth(value)
    return value


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _refuse_depth(value: Any) -> None:
    layer, depth = [value], 0
    while layer := [child for outer in layer for child in _children(outer) if isinstance(child, dict | list)]:
        depth += 1
        if depth > _MAX_JSON_DEPTH:
            raise ValueError(f"is nested more than {_MAX_JSON_DEPTH} deep")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def write_json(uri: str, value: Any) -> None:
    """Write JSON with a stable layout; NaN and infinity are refused, since JSON has no word for them."""
    write_bytes(uri, (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode())


def remove_tree(uri: str) -> None:
    """Delete a folder and what is in it; nothing happens where it does not exist."""
    filesystem, path = resolve(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)


def remove_file(uri: str) -> None:
    """Delete a file; nothing happens where it does not exist."""
    filesystem, path = resolve(uri)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)


class OutputFolder:
    """A result folder that is either the old one or the whole new one, at every moment.

    Work goes into ``staging``, beside the final place; ``publish`` moves it there in one step (on an object
    store: copies it, the manifest last). A staging folder left by a killed run is kept for ``resume``.

    Parameters
    ----------
    uri : str
        The final place.
    overwrite : bool
        Whether a finished result may be replaced. Folders that ghost_ray did not write are never replaced.
    resume : bool
        Keep what an interrupted run left in staging.
    """

    def __init__(self, uri: str, *, overwrite: bool = False, resume: bool = False, field: str = "--out") -> None:
        self.uri, self.field, self.overwrite, self.resume = uri.rstrip("/") or uri, field, overwrite, resume
        self._fs, self._path = resolve(uri, field)
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        parent, name = os.path.split(self._path)
        self._staging_path = os.path.join(parent, f".{name}.partial") if self._local else f"{self._path}.partial"
        self.staging = self._staging_path if self._local else beside(self.uri, ".partial")
        self._lock: int | None = None
        self.check()

    def check(self) -> None:
        """Refuse, before any work, a place where the result could not be published."""
        found = self._fs.get_file_info(self._path)
        if found.type == fs.FileType.File:
            raise InputError(self.field, self.uri, "is a file, a folder is needed", "choose another name")
        if found.type == fs.FileType.Directory:
            content = self._fs.get_file_info(fs.FileSelector(self._path))
            taken = bool(content) and not self._is_half_published()
            if taken and not self._is_ours():
                raise InputError(
                    self.field, self.uri, "exists and is no finished ghost_ray result", "choose a new folder"
                )
            if taken and not self.overwrite:
                raise InputError(
                    self.field,
                    self.uri,
                    "exists already",
                    "add --overwrite to replace it whole, or choose a new folder",
                )
        if self._local:
            ancestor = Path(self._path).parent
            while not ancestor.exists():
                ancestor = ancestor.parent
            if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
                raise InputError(
                    self.field, self.uri, f"{ancestor} is not writable", "choose a folder you may write to"
                )

    def _is_ours(self) -> bool:
        try:
            return str(read_json(join(self.uri, MANIFEST)).get("format", "")) == "ghost_ray"
        except (ValueError, OSError, AttributeError):
            return False

    def _is_half_published(self) -> bool:
        """Whether a run was killed while it copied: on an object store, its finished result still lies in staging."""
        if self._local or kind_of(join(self.staging, MANIFEST)) != "file":
            return False
        return self.resume or not self._is_ours()

    def __enter__(self) -> OutputFolder:
        try:
            self._fs.create_dir(self._staging_path, recursive=True)
            if self._local:
                self._take_lock()
            if not self.resume:
                self._fs.delete_dir_contents(self._staging_path)
        except OSError as error:
            raise InputError(self.field, self.uri, f"cannot be written: {one_line(error)}", "check the place") from None
        return self

    def _take_lock(self) -> None:
        # The lock sits on the staging folder itself: it ends with the process and leaves no file behind.
        self._lock = os.open(self._staging_path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise InputError(self.field, self.uri, "another run is writing it now", "wait for it to end") from None

    def __exit__(self, *_: object) -> None:
        if not self.resume:
            remove_tree(self.staging)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def publish(self) -> None:
        """Move the finished staging folder to its final place."""
        if self._local:
            _swap_in(self._staging_path, self._path)
        else:
            self._copy_in()
        remove_tree(self.staging)

    def _copy_in(self) -> None:
        files = [
            info.path
            for info in self._fs.get_file_info(fs.FileSelector(self._staging_path, recursive=True))
            if info.type == fs.FileType.File
        ]
        # The manifest goes last: until it is there, nobody takes the folder for whole.
        files.sort(key=lambda path: path == f"{self._staging_path}/{MANIFEST}")
        remove_tree(self.uri)
        for path in files:
            self._fs.copy_file(path, self._path + path.removeprefix(self._staging_path))


def _swap_in(new: str, place: str) -> None:
    """Put folder ``new`` at ``place`` with one rename; what was there before is removed afterwards."""
    if not os.path.exists(place):
        os.rename(new, place)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd = -100
    if libc.renameat2(at_cwd, os.fsencode(new), at_cwd, os.fsencode(place), _RENAME_EXCHANGE) != 0:
        # A file system without atomic exchange: two renames, the old folder kept until the new one stands.
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), place)
        aside = f"{new}.replaced"
        os.rename(place, aside)
        os.rename(new, place)
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def output_file(uri: str, *, overwrite: bool, field: str = "--out") -> Iterator[pa.NativeFile]:
    """A single result file, written aside and put in place when the block ends without an error."""
    filesystem, path = resolve(uri, field)
    found = filesystem.get_file_info(path).type
    if found == fs.FileType.Directory:
        raise InputError(field, uri, "is a folder, a file name is needed", "for example scores.parquet")
    if found == fs.FileType.File and not overwrite:
        raise InputError(field, uri, "exists already", "add --overwrite to replace it, or choose a new name")
    temporary = f"{path}.partial"
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        handle = filesystem.open_output_stream(temporary)
    except OSError as error:
        raise InputError(field, uri, f"cannot be written: {one_line(error)}", "choose another place") from None
    try:
        with handle:
            yield handle
        filesystem.move(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)
        raise
