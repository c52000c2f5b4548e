"""Results that appear complete or not at all: folders and single files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.files.causes import cause_of, explained, reaching
from ghost_ray.files.json_files import read_json
from ghost_ray.files.paths import MANIFEST, beside, join, kind_of, remove_tree, require_lasting, resolve

_RENAME_EXCHANGE = 2
_COPIES = 16  # of files within an object store at a time: a copy is a request, and nothing passes through here


class OutputFolder:
    """A result folder that is always either the old one or the complete new one.

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

    def __init__(self, uri: str, *, overwrite: bool = False, resume: bool = False, field: str = "out") -> None:
        self.uri, self.field, self.overwrite, self.resume = uri.rstrip("/") or uri, field, overwrite, resume
        require_lasting(uri, field)
        self._fs, self._path = resolve(uri, field)
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        parent, name = os.path.split(self._path)
        self._staging_path = os.path.join(parent, f".{name}.partial") if self._local else f"{self._path}.partial"
        self.staging = self._staging_path if self._local else beside(self.uri, ".partial")
        self._lock: int | None = None
        self.check()

    def check(self) -> None:
        """Refuse, before any work, a place where the result could not be published."""
        with reaching(self.uri, self.field):
            self._require_free()

    def _require_free(self) -> None:
        found = self._fs.get_file_info(self._path)
        if found.type == fs.FileType.File:
            raise InputError(self.field, self.uri, "is a file, expected a folder", "choose another name")
        if found.type == fs.FileType.Directory:
            content = self._fs.get_file_info(fs.FileSelector(self._path))
            taken = bool(content) and not self._is_half_published()
            if taken and not self._is_ours():
                raise InputError(
                    self.field, self.uri, "exists and is not a finished ghost_ray result", "choose a new folder"
                )
            if taken and not self.overwrite:
                raise InputError(
                    self.field,
                    self.uri,
                    "exists already",
                    "add `overwrite=True` to replace it whole, or choose a new folder",
                )
        if self._local:
            ancestor = Path(self._path).parent
            while not ancestor.exists():
                ancestor = ancestor.parent
            if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
                raise InputError(
                    self.field, self.uri, f"{ancestor} is not writable", "choose a folder that you can write to"
                )

    def _is_ours(self) -> bool:
        try:
            return str(read_json(join(self.uri, MANIFEST)).get("format", "")) == "ghost_ray"
        except (ValueError, OSError, AttributeError):
            return False

    def _is_half_published(self) -> bool:
        """Whether a run was killed while it copied: on an object store, its finished result is still in staging."""
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
            if cause_of(error) not in (None, "absent", "forbidden"):
                raise explained(error, self.field, self.uri) from None
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
        remove_tree(self.uri)

        def copy(path: str) -> None:
            self._fs.copy_file(path, self._path + path.removeprefix(self._staging_path))

        # The manifest goes last: until then, readers see that the folder is incomplete.
        manifest = f"{self._staging_path}/{MANIFEST}"
        with ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(copy, (path for path in files if path != manifest)))
        if manifest in files:
            copy(manifest)


def _swap_in(new: str, place: str) -> None:
    """Put folder ``new`` at ``place`` with one rename; what was there before is removed afterwards."""
    if not os.path.exists(place):
        os.rename(new, place)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd = -100
    if libc.renameat2(at_cwd, os.fsencode(new), at_cwd, os.fsencode(place), _RENAME_EXCHANGE) != 0:
        # A file system without atomic exchange: two renames, the old folder kept until the new one is in place.
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), place)
        aside = f"{new}.replaced"
        os.rename(place, aside)
        os.rename(new, place)
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def output_file(uri: str, *, overwrite: bool, field: str = "out") -> Iterator[pa.NativeFile]:
    """A single result file, written aside and put in place when the block ends without an error."""
    require_lasting(uri, field)
    filesystem, path = resolve(uri, field)
    found = filesystem.get_file_info(path).type
    if found == fs.FileType.Directory:
        raise InputError(field, uri, "is a folder, expected a file name", "for example scores.parquet")
    if found == fs.FileType.File and not overwrite:
        raise InputError(field, uri, "exists already", "add `overwrite=True` to replace it, or choose a new name")
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
