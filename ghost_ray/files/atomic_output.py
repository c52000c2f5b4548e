"""Results that appear complete or not at all: folders and single files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files.claims import Busy, Claim, claim_on, describe, this_process
from ghost_ray.files.json_files import read_json, write_json
from ghost_ray.files.paths import (
    MANIFEST,
    beside,
    join,
    kind_of,
    remove_file,
    remove_tree,
    require_lasting,
    require_regular,
    resolve,
    sync,
)
from ghost_ray.files.storage_errors import cause_of, explained, reaching
from ghost_ray.progress import say

_RENAME_EXCHANGE = 2
_COPIES = 16  # copies at a time within an object store: each is one request, and no bytes pass through this machine
_PUBLISHING = ".publishing.json"  # in staging while it is copied: the names of the files that are replaced


class OutputFolder:
    """A result folder that is the old one or the complete new one; a process that is killed loses neither.

    Work goes into ``staging``, beside the final place; ``publish`` moves it there in one step. An object store has no
    such step: there it is copied, the manifest last, and stays in staging until then. If that is interrupted, the next
    `OutputFolder` of this place completes it. A staging folder left by a killed run is kept for ``resume``. One process
    at a time has the place.

    Parameters
    ----------
    uri : str
        The final place.
    kind : str, optional
        The kind of result that is written; a result of another kind is never replaced.
    overwrite : bool
        Whether a finished result may be replaced. Folders that ghost_ray did not write are never replaced.
    resume : bool
        Keep what an interrupted run left in staging.
    differs : callable, optional
        From the manifest of an existing result, returns in words what this run would make differently. If that is
        empty, the result is ``finished`` already.
    """

    def __init__(
        self,
        uri: str,
        *,
        kind: str | None = None,
        overwrite: bool = False,
        resume: bool = False,
        field: str = "out",
        differs: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        self.uri, self.field, self.overwrite, self.resume = uri.rstrip("/") or uri, field, overwrite, resume
        self.finished = False
        self._kind, self._differs = kind, differs
        require_lasting(uri, field)
        self._fs, self._path = resolve(uri, field)
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        if self._local:
            self._path = os.path.realpath(self._path)  # a link stays, and what it leads to is written
        parent, name = os.path.split(self._path)
        self._staging_path = os.path.join(parent, f".{name}.partial") if self._local else f"{self._path}.partial"
        self.staging = self._staging_path if self._local else beside(self.uri, ".partial")
        self._aside = f"{self._staging_path}.replaced"
        where = os.path.join(parent, f".{name}.claim") if self._local else beside(self.uri, ".claim")
        # A store that ignores conditions still shows a claim to all but those who start at the same moment.
        self._claim = claim_on(where, self.uri, field, kept=False, probed=False)
        self._held: Claim | None = None
        self.check()

    def check(self) -> None:
        """Refuse, before any work, a place where the result could not be published, or where another run works."""
        with reaching(self.uri, self.field):
            with contextlib.suppress(PermissionError, InputError):
                if (holder := self._claim.holder()) is not None:
                    raise self._busy(describe(holder))
            if self._is_half_published():
                self._hold()
                try:
                    self._complete()
                finally:
                    self._let_go()
            self._require_free()

    def _busy(self, holder: str) -> Busy:
        return Busy(f"another run works on {redact(self.uri)} now ({holder}); run it again later")

    def _require_free(self) -> None:
        found = self._fs.get_file_info(self._path)
        if found.type == fs.FileType.File:
            raise InputError(self.field, self.uri, "is a file, expected a folder", "choose another name")
        if self._local:
            require_regular(self.uri, self._path, self.field)
        if found.type == fs.FileType.Directory and self._fs.get_file_info(fs.FileSelector(self._path)):
            self._require_replaceable()
        if self._local:
            ancestor = Path(self._path).parent
            while not ancestor.exists():
                ancestor = ancestor.parent
            if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
                raise InputError(
                    self.field, self.uri, f"{ancestor} is not writable", "choose a folder that you can write to"
                )

    def _require_replaceable(self) -> None:
        made = self._manifest_there()
        new = "choose a new folder"
        if made is None:
            raise InputError(self.field, self.uri, "exists and is not a finished ghost_ray result", new)
        kind = made.get("kind", self._kind)
        if self._kind not in (None, kind):
            problem = f"is a result of another kind ({one_line(kind, 40)}), which is not replaced by this one"
            raise InputError(self.field, self.uri, f"{problem} ({self._kind})", new)
        if self.overwrite:
            return
        problem = "exists already"
        if self._differs is not None:
            difference = self._differs(made)
            self.finished = not difference
            problem += f" and was made differently: {difference}"
            if self.finished:
                when = one_line(made.get("created"), 40)
                say(f"{redact(self.uri)} is done already: the same settings and inputs made it at {when}")
        if not self.finished:
            raise InputError(self.field, self.uri, problem, f"add `overwrite=True` to replace it whole, or {new}")

    def _manifest_there(self) -> dict[str, Any] | None:
        """The manifest of a result of ghost_ray at the place."""
        try:
            made = read_json(join(self.uri, MANIFEST))
        except (ValueError, OSError):
            return None
        return made if isinstance(made, dict) and made.get("format") == "ghost_ray" else None

    def __enter__(self) -> OutputFolder:
        self._hold()
        try:
            with reaching(self.uri, self.field):
                self._require_free()  # another run may have ended meanwhile
            if self.finished:
                raise Busy(f"another run has just finished {redact(self.uri)}; run it again to see its result")
            self._fs.create_dir(os.path.dirname(self._staging_path) if self._local else self._staging_path)
            if self._local:
                self._require_own_staging()
            if not self.resume:
                self._fs.delete_dir_contents(self._staging_path)
        except OSError as error:
            self._let_go()
            if cause_of(error) not in (None, "absent", "forbidden"):
                raise explained(error, self.field, self.uri) from None
            raise InputError(self.field, self.uri, f"cannot be written: {one_line(error)}", "check the place") from None
        except BaseException:
            self._let_go()
            raise
        return self

    def _hold(self) -> None:
        """Keep other processes from the place, if its store can. Writing shows whether it may be written."""
        with contextlib.suppress(PermissionError):
            try:
                taken = self._claim.take(this_process())
            except InputError:
                if self._local:
                    raise
                return
            if not taken:
                raise self._busy(describe(self._claim.holder()))
            self._held = self._claim

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    def _require_own_staging(self) -> None:
        """Make the local staging folder; what another run left there is used, a link that leads elsewhere is not."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._staging_path)
        if os.path.islink(self._staging_path) or not os.path.isdir(self._staging_path):
            raise InputError(self.field, self.uri, f"{self._staging_path} is not a folder", "remove it")
        if os.path.exists(self._path):
            shutil.rmtree(self._aside, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        if not self.resume:
            remove_tree(self.staging)
        self._let_go()

    def publish(self) -> None:
        """Move the finished staging folder to its final place."""
        if self._held is not None:
            self._held.check()
        if self._local:
            self._swap_in()
            return
        replaced = self._files_in(self._path)
        write_json(join(self.staging, _PUBLISHING), replaced)
        self._complete()

    def _is_half_published(self) -> bool:
        """Whether a run was killed while it put its finished result in place."""
        if self._local:
            return os.path.isdir(self._aside) and not os.path.exists(self._path)
        return kind_of(join(self.staging, _PUBLISHING)) == "file"

    def _complete(self) -> None:
        """Complete what a run began when it published; may be done again after a kill at any moment."""
        if self._local:
            if self._is_half_published():
                os.rename(self._aside, self._path)
            return
        new = [name for name in self._files_in(self._staging_path) if name != _PUBLISHING]
        if MANIFEST in new:  # else all is in place, and only staging is left to be removed
            old = read_json(join(self.staging, _PUBLISHING))
            data = [name for name in new if name != MANIFEST]
            self._copy(name for name in data if name not in old)
            # From here on, readers find the result incomplete: old and new files under one manifest could be taken
            # for a whole.
            remove_file(join(self.uri, MANIFEST))
            self._copy(name for name in data if name in old)
            self._copy([MANIFEST])
            self._each(self._delete, set(old) - set(new))
            remove_file(join(self.staging, MANIFEST))
        remove_tree(self.staging)

    def _files_in(self, folder: str) -> list[str]:
        """All files below a folder of an object store."""
        listing = self._fs.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        return [info.path[len(folder) + 1 :] for info in listing if info.type == fs.FileType.File]

    def _copy(self, names: Iterable[str]) -> None:
        self._each(lambda name: self._fs.copy_file(f"{self._staging_path}/{name}", f"{self._path}/{name}"), names)

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # deleted before a kill
            self._fs.delete_file(f"{self._path}/{name}")

    def _each(self, do: Callable[[str], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(do, names))

    def _swap_in(self) -> None:
        """Put staging at the place with one rename; what was there before is removed afterwards."""
        parent = os.path.dirname(self._path)
        if not os.path.exists(self._path):
            os.rename(self._staging_path, self._path)
            sync(parent)
            return
        shutil.rmtree(self._aside, ignore_errors=True)
        libc = ctypes.CDLL(None, use_errno=True)
        at_cwd = -100
        new, place = os.fsencode(self._staging_path), os.fsencode(self._path)
        if libc.renameat2(at_cwd, new, at_cwd, place, _RENAME_EXCHANGE) == 0:
            os.rename(self._staging_path, self._aside)
        else:
            # A file system without atomic exchange: two renames, the old folder kept until the new one is in place.
            code = ctypes.get_errno()
            if code not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(code, os.strerror(code), self._path)
            os.rename(self._path, self._aside)
            os.rename(self._staging_path, self._path)
        sync(parent)
        shutil.rmtree(self._aside, ignore_errors=True)


@contextlib.contextmanager
def output_file(uri: str, *, overwrite: bool, field: str = "out") -> Iterator[pa.NativeFile]:
    """A single result file, written aside and put in place when the block ends without an error."""
    require_lasting(uri, field)
    filesystem, path = resolve(uri, field)
    local = isinstance(filesystem, fs.LocalFileSystem)
    if local:
        path = os.path.realpath(path)
        require_regular(uri, path, field)
    found = filesystem.get_file_info(path).type
    if found == fs.FileType.Directory:
        raise InputError(field, uri, "is a folder, expected a file name", "for example scores.parquet")
    if found == fs.FileType.File and not overwrite:
        raise InputError(field, uri, "exists already", "add `overwrite=True` to replace it, or choose a new name")
    temporary = f"{path}.{secrets.token_hex(8)}.partial"  # nobody can put a link there
    try:
        if local:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        handle = filesystem.open_output_stream(temporary)
    except OSError as error:
        raise InputError(field, uri, f"cannot be written: {one_line(error)}", "choose another place") from None
    try:
        with handle:
            yield handle
        if local:
            sync(temporary)
        filesystem.move(temporary, path)
        if local:
            sync(os.path.dirname(path))
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)
        raise
