"""Compare and swap for files: a file is replaced only if it has not changed since it was read.

Object stores support this: a conditional write is refused if the object has another tag than expected. pyarrow has no
such write, so these few small files go through obstore. Locally, a file lock is held while comparing and renaming.
"""

from __future__ import annotations

import configparser
import contextlib
import datetime
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghost_ray.errors import InputError, redact
from ghost_ray.files.paths import beside, is_local, resolve, sync, write_bytes

if TYPE_CHECKING:  # imported where it is used: few commands touch an object store
    from obstore.store import ObjectStore

_LOCKS = ".locks"
_SECONDS = 3  # per request
_RETRIES = 3
_RETRY_SECONDS = 15
_proven: set[tuple[str, ...]] = set()  # buckets whose store is known to honour conditions


class Changed(Exception):
    """Another process has replaced the file since it was read."""


@dataclass(frozen=True)
class Snapshot:
    """Content and tag of a file when it was read or written."""

    data: bytes
    tag: dict[str, str | None]


def read_snapshot(uri: str) -> Snapshot | None:
    """The present state of the file, or None if there is no file; raises an OSError as pyarrow does."""
    if is_local(uri):
        try:
            data = Path(resolve(uri)[1]).read_bytes()
        except FileNotFoundError:
            return None
        return _local_snapshot(data)
    store, path = _store_of(uri)
    try:
        with _as_os_errors():
            found = store.get(path)
            meta = found.meta
            return Snapshot(bytes(found.bytes()), {"e_tag": meta["e_tag"], "version": meta["version"]})
    except FileNotFoundError:
        return None


def swap(uri: str, data: bytes, expected: Snapshot | None, *, probed: bool = True) -> Snapshot:
    """Replace a file in the ``expected`` state by ``data``; None: create it. Returns the new state.

    Raises
    ------
    Changed
        If the file is in another state; nothing was written.
    InputError
        If the store ignores conditions. It is only tested if ``probed``.
    """
    if is_local(uri):
        path = resolve(uri)[1]
        with _held(path):
            if read_snapshot(uri) != expected:
                raise Changed
            write_bytes(uri, data)
            sync(os.path.dirname(path))
        return _local_snapshot(data)
    store, path = _store_of(uri)
    if probed:
        _require_conditions(store, uri, path)
    mode: Any = "create" if expected is None else {name: tag for name, tag in expected.tag.items() if tag is not None}
    try:
        with _as_os_errors():
            written = store.put(path, data, mode=mode)
    except Changed:
        # A write whose answer was lost is sent again, and then conflicts with itself.
        present = read_snapshot(uri)
        if present is None or present.data != data:
            raise
        return present
    return Snapshot(data, {"e_tag": written["e_tag"], "version": written["version"]})


def remove(uri: str) -> None:
    """Delete an object, if it exists."""
    store, path = _store_of(uri)
    with _as_os_errors(), contextlib.suppress(FileNotFoundError):
        store.delete(path)


def time_at(uri: str) -> datetime.datetime:
    """The present time by the clock of the store that ``uri`` is on, not by a machine's own."""
    store, path = _store_of(beside(uri, f".{secrets.token_hex(4)}.tmp"))
    with _as_os_errors():
        store.put(path, b"")
        try:
            return store.head(path)["last_modified"]
        finally:
            store.delete(path)


def written_at(uri: str) -> datetime.datetime:
    """When an object was written, by the clock of its store."""
    store, path = _store_of(uri)
    with _as_os_errors():
        return store.head(path)["last_modified"]


def _require_conditions(store: ObjectStore, uri: str, path: str) -> None:
    """Refuse a store that ignores conditions, as some that speak S3 do; tested once per process and bucket."""
    bucket = (uri.partition(path)[0], uri.partition("?")[2], os.environ.get("AWS_ENDPOINT_URL", ""))
    if bucket in _proven:
        return
    probe = f"{path}.{secrets.token_hex(4)}.tmp"
    wrong: Any = {"e_tag": '"0123456789abcdef0123456789abcdef"'}
    with _as_os_errors():
        store.put(probe, b"1", mode="create")
        try:
            honoured = all(_is_refused(store, probe, mode) for mode in ("create", wrong))
        finally:
            store.delete(probe)
    if not honoured:
        raise InputError(
            "path",
            redact(uri),
            "its store ignores the conditions of writes (If-None-Match, If-Match), so two processes could both win",
            "use a local folder, or a store that honours them, as AWS, Google, Azure and newer MinIO do",
        )
    _proven.add(bucket)


def _is_refused(store: ObjectStore, path: str, mode: Any) -> bool:
    try:
        with _as_os_errors():
            store.put(path, b"2", mode=mode)
    except Changed:
        return True
    return False


def _local_snapshot(data: bytes) -> Snapshot:
    return Snapshot(data, {"e_tag": hashlib.sha256(data).hexdigest(), "version": None})


@contextlib.contextmanager
def _held(path: str) -> Iterator[None]:
    """Lock the file against other compare-and-swap operations on this file system for the block."""
    folder, name = os.path.split(path)
    os.makedirs(os.path.join(folder, _LOCKS), exist_ok=True)
    handle = os.open(os.path.join(folder, _LOCKS, name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _store_of(uri: str) -> tuple[ObjectStore, str]:
    """The bucket of a place as obstore opens it, with pyarrow's settings for it, and the path in it."""
    from obstore.store import AzureStore, GCSStore, S3Store

    filesystem, path = resolve(uri)
    bucket, _, inside = path.partition("/")
    shared: Any = {
        "client_options": {"timeout": f"{_SECONDS}s", "connect_timeout": f"{_SECONDS}s", "allow_http": True},
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": datetime.timedelta(seconds=_RETRY_SECONDS)},
    }
    kind = filesystem.type_name
    if kind == "s3":
        _, (options, *_rest) = filesystem.__reduce__()
        return S3Store(bucket, config=_s3_config(options), **shared), inside
    if kind == "gcs":
        return GCSStore(bucket, **shared), inside
    if kind == "abfs":
        return AzureStore(bucket, account_name=_azure_account(uri), **shared), inside
    known = "use a local folder, s3://, gs:// or abfs://"
    raise InputError("path", redact(uri), "this kind of store does not support conditional writes", known)


def _s3_config(options: dict[str, Any]) -> Any:
    """The options of pyarrow's client, the environment and the user's files, as settings of obstore."""
    secret, key = options["secret_key"], options["access_key"]
    if not key and not os.environ.get("AWS_ACCESS_KEY_ID"):
        key, secret = _shared_credentials()
    found = {
        "access_key_id": key,
        "secret_access_key": secret,
        "session_token": options["session_token"],
        "region": options["region"] or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        "skip_signature": True if options["anonymous"] else None,
    }
    endpoint = options["endpoint_override"]
    if endpoint:
        found["endpoint"] = endpoint if "://" in endpoint else f"{options['scheme'] or 'https'}://{endpoint}"
    return {name: value for name, value in found.items() if value}


def _shared_credentials() -> tuple[str | None, str | None]:
    """Key and secret of the profile in ``~/.aws/credentials``, which obstore does not read by itself."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
        parser.read(file)
    profile = os.environ.get("AWS_PROFILE", "default")
    if not parser.has_section(profile):
        return None, None
    section = parser[profile]
    return section.get("aws_access_key_id"), section.get("aws_secret_access_key")


def _azure_account(uri: str) -> str | None:
    """The account in ``abfs://container@account.dfs.core.windows.net/path``, or else in the environment."""
    host = uri.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return host.partition(".")[0] if "." in host else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    """Turn errors of obstore into Changed and the OSErrors that `storage_errors` distinguishes."""
    from obstore import exceptions as known

    try:
        yield
    except (known.AlreadyExistsError, known.PreconditionError, known.NotModifiedError):
        raise Changed from None
    except (FileNotFoundError, known.NotFoundError) as error:
        raise FileNotFoundError(_first_line(error)) from None
    except (known.PermissionDeniedError, known.UnauthenticatedError) as error:
        raise PermissionError(_first_line(error)) from None
    except known.BaseError as error:
        text = str(error)
        if "TimedOut" in text or "timed out" in text:
            raise TimeoutError(_first_line(error)) from None
        raise OSError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    """The message without the debug output that follows it."""
    return str(error).partition("\n")[0]
