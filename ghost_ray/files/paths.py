"""Paths of every kind (local, s3://, gs://, abfs://, hf://) through pyarrow.fs, and small files at them."""

from __future__ import annotations

import contextlib
import copyreg
import errno
import functools
import json
import os
import re
import secrets
import shutil
import stat
import urllib.parse
from collections.abc import Iterator
from contextvars import ContextVar

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files.storage_errors import cause_of, explained

MANIFEST = "manifest.json"
# A request without an answer is given up after three seconds. With these retries and pauses, a hung store costs at most
# twenty seconds; pyarrow's defaults take a hundred.
_ATTEMPTS = 4
_GCS_SECONDS = 20
_BUCKETS = ("s3", "gs", "gcs")
_CREDENTIALS = ("AWS_", "GOOGLE_", "CLOUDSDK_")
Settings = tuple[tuple[str, str], ...]  # environment variables; a client keeps those it was made with
_RAYS_COPY = "/runtime_resources/working_dir_files/"
_attempts: ContextVar[int] = ContextVar("attempts", default=_ATTEMPTS)


def is_local(uri: str) -> bool:
    """Whether ``uri`` names a path of this machine's file system."""
    return "://" not in uri or uri.startswith("file://")


def resolve(uri: str | os.PathLike[str], field: str = "path") -> tuple[fs.FileSystem, str]:
    """The file system of ``uri`` and the path in it; InputError names ``field`` where there is none."""
    text = os.fspath(uri)
    if not text or "\n" in text or "\0" in text:
        raise InputError(field, text, "is not a path", "give a local path or one on s3://, gs://, abfs:// or hf://")
    try:
        if is_local(text):
            return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text.removeprefix("file://")))
        filesystem, path = _open(text)
        return filesystem, path.rstrip("/")
    except (pa.ArrowInvalid, OSError, ValueError, NotImplementedError) as error:
        if isinstance(error, OSError) and cause_of(error) is not None:
            raise explained(error, field, text) from None
        raise InputError(
            field,
            redact(text),
            f"cannot be opened: {one_line(error)}",
            "allowed: a local path, s3://…, gs://…, abfs://… or hf://…",
        ) from None


def require_lasting(uri: str, field: str) -> None:
    """Refuse, inside a submitted job, a path in Ray's copy of the working directory, which is deleted with the job."""
    if is_local(uri) and _RAYS_COPY in f"{os.path.realpath(resolve(uri, field)[1])}/":
        raise InputError(
            field,
            uri,
            "is in Ray's copy of the working directory, which is deleted with the job",
            "give the absolute path of a folder outside it, or an object store (s3://, gs://, abfs://)",
        )


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a remote place and the path in it.

    A bucket is opened once per process and shared from then on: a client has its own connections, and finding out the
    region of a bucket takes a request.
    """
    scheme, _, place = uri.partition("://")
    if scheme not in _BUCKETS:
        return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
    place, mark, options = place.partition("?")
    host, slash, below = place.partition("/")
    filesystem, bucket = _open_bucket(f"{scheme}://{host}{mark}{options}", _attempts.get(), _settings())
    return filesystem, f"{bucket}{slash}{urllib.parse.unquote(below)}"


def _settings() -> Settings:
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith(_CREDENTIALS)))


@functools.lru_cache(maxsize=64)
def _open_bucket(uri: str, attempts: int, settings: Settings) -> tuple[fs.FileSystem, str]:
    """A bucket as these ``settings`` of the environment reach it, which gives up on a store that does not answer."""
    if not uri.startswith("s3:") and "retry_limit_seconds=" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={_GCS_SECONDS}"
    filesystem, bucket = fs.FileSystem.from_uri(uri)
    if isinstance(filesystem, fs.S3FileSystem):
        filesystem = _s3(_options_of(filesystem), attempts, settings)
    return filesystem, bucket


def _options_of(filesystem: fs.S3FileSystem) -> str:
    _, (options,) = fs.S3FileSystem.__reduce__(filesystem)
    # An object that is opened late is put in one request, not in the three of an upload in parts.
    return json.dumps({**options, "allow_delayed_open": True}, sort_keys=True)


@functools.lru_cache(maxsize=64)
def _s3(options: str, attempts: int, settings: Settings) -> fs.S3FileSystem:
    return fs.S3FileSystem(**json.loads(options), retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=attempts))


def _s3_of_this_process(options: str) -> fs.S3FileSystem:
    return _s3(options, _attempts.get(), _settings())


# Tasks carry their file system to workers; a worker, too, opens each bucket once.
copyreg.pickle(fs.S3FileSystem, lambda filesystem: (_s3_of_this_process, (_options_of(filesystem),)))


@contextlib.contextmanager
def one_attempt() -> Iterator[None]:
    """Do not retry requests in the block, for callers that retry themselves."""
    token = _attempts.set(1)
    try:
        yield
    finally:
        _attempts.reset(token)


def join(uri: str, *parts: str) -> str:
    """``uri`` with ``parts`` below it, in the notation ``uri`` came in."""
    below = "".join(f"/{part}" for part in parts)
    # Others may have chosen the name: it must never become an option of the place, such as the host.
    return beside(uri, below if is_local(uri) else re.sub(r"[%?#]", lambda sign: f"%{ord(sign[0]):02X}", below))


def beside(uri: str, suffix: str) -> str:
    """``uri`` with ``suffix`` at the end of its name; options of the store, ``?scheme=http``, stay at the very end."""
    place, mark, options = (uri, "", "") if is_local(uri) else uri.partition("?")
    return f"{place.rstrip('/')}{suffix}{mark}{options}"


def name_of(uri: str) -> str:
    """The last part of the place that ``uri`` names."""
    return resolve(uri)[1].rpartition("/")[2]


def kind_of(uri: str) -> str:
    """``file``, ``folder`` or ``nothing``: what is at ``uri``."""
    filesystem, path = resolve(uri)
    found = filesystem.get_file_info(path).type
    return {fs.FileType.File: "file", fs.FileType.Directory: "folder"}.get(found, "nothing")


def names_in(uri: str) -> list[str]:
    """Names of the files directly in a folder, sorted; empty if the folder does not exist."""
    return _names(uri, fs.FileType.File)


def folders_in(uri: str) -> list[str]:
    """Names of the folders directly in a folder, sorted; empty if the folder does not exist."""
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
    """The content of a small file; ValueError if it is larger than ``limit`` bytes."""
    with open_input(uri) as handle:
        size = handle.size()
        if limit is not None and size > limit:
            raise ValueError(f"is {size:,} bytes long, more than the {limit:,} allowed")
        return bytes(handle.read())


def write_bytes(uri: str, data: bytes) -> None:
    """Write a small file in one step: readers see the old content or the new, never a partial one."""
    filesystem, path = resolve(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        require_regular(uri, path, "path")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            with open(temporary, "xb") as handle:
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


def require_regular(uri: str, path: str, field: str) -> None:
    """Refuse to replace a pipe, a socket or a device; ``path`` is local."""
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError(field, uri, "is neither a file nor a folder", "choose another name")


def sync_tree(uri: str) -> None:
    """`sync` a folder and all below it; what is written to an object store lasts anyway."""
    filesystem, path = resolve(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        for folder, _, names in os.walk(path, topdown=False):
            for name in names:
                sync(os.path.join(folder, name))
            sync(folder)


def sync(path: str) -> None:
    """Make the bytes of a local file, or the names in a local folder, survive a power cut."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # a link, or removed meanwhile
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot do it for folders
            raise
    finally:
        os.close(handle)


def remove_tree(uri: str) -> None:
    """Delete a folder and its content, if it exists."""
    filesystem, path = resolve(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)


def remove_file(uri: str) -> None:
    """Delete a file, if it exists."""
    filesystem, path = resolve(uri)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)
