"""Size and SHA-256 of the files of a result: recorded in its manifest when it is written, compared when it is read."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs
from pydantic import BaseModel, ConfigDict, Field

from ghost_ray.errors import Damaged, redact
from ghost_ray.files.json_files import read_sealed
from ghost_ray.files.paths import MANIFEST, join, resolve

_CHUNK = 4 << 20
_READERS = 8


class Digest(BaseModel):
    """What a file held when it was written."""

    model_config = ConfigDict(frozen=True, extra="allow")

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


Digests = Mapping[str, Digest]  # by path below the folder


class Damage(NamedTuple):
    """A file that is not as it was written."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file} {self.problem}"


def digest_of_bytes(data: bytes) -> Digest:
    """The digest of a file with these bytes."""
    return Digest(size=len(data), sha256=hashlib.sha256(data).hexdigest())


class HashingFile(io.RawIOBase):
    """A file being written, whose digest is known when it is closed: large files are never read for it.

    Parameters
    ----------
    stream : pyarrow.NativeFile
        Where the bytes go. It is closed with this file.
    """

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream, self._hash, self._size = stream, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type] # io's own annotation is of later Pythons
        self._stream.write(view)
        self._hash.update(view)
        self._size += view.nbytes
        return view.nbytes

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def digest(self) -> Digest:
        """Size and digest of all that was written."""
        return Digest(size=self._size, sha256=self._hash.hexdigest())


def sizes_in(folder: str, *, every: bool = False) -> dict[str, int]:
    """Every file of a result, by path and size.

    Hidden and half-written files and the manifest itself are included only if ``every`` is set.
    """
    filesystem, path = resolve(folder)
    listing = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    names = {info.path[len(path) :].lstrip("/"): info for info in listing if info.type == fs.FileType.File}
    return {name: int(info.size or 0) for name, info in sorted(names.items()) if every or _is_part(name)}


def _is_part(name: str) -> bool:
    steps = name.split("/")
    unfinished = any(step.startswith(".") or step.endswith((".partial", ".tmp")) for step in steps)
    return not unfinished and name != MANIFEST


def digests_of(folder: str) -> dict[str, Digest]:
    """Size and digest of every file of a result; those of results inside it are taken from their own manifests."""
    sizes = sizes_in(folder)
    known: dict[str, Digest] = {}
    for manifest in (name for name in sizes if name.rpartition("/")[2] == MANIFEST):
        below = manifest.removesuffix(MANIFEST)
        raw = read_sealed(join(folder, manifest)).get("digests") or {}
        known |= {f"{below}{name}": Digest.model_validate(digest) for name, digest in raw.items()}
    left = [name for name in sizes if name not in known or known[name].size != sizes[name]]
    known |= _each(left, lambda name: digest_of(join(folder, name)))
    return {name: known[name] for name in sizes}


def digest_of(uri: str) -> Digest:
    """Size and digest of a file, by reading it."""
    filesystem, path = resolve(uri)
    hashed, size = hashlib.sha256(), 0
    with filesystem.open_input_stream(path) as stream:
        while data := stream.read(_CHUNK):
            hashed.update(data)
            size += len(data)
    return Digest(size=size, sha256=hashed.hexdigest())


def _each(names: Iterable[str], call: Callable[[str], Digest]) -> dict[str, Digest]:
    names = list(names)
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(names, pool.map(call, names), strict=True))


def wrong_sizes(folder: str, digests: Digests) -> list[Damage]:
    """The files that are missing or of another size; costs one listing."""
    sizes = sizes_in(folder) if digests else {}
    return [damage for name, digest in digests.items() if (damage := _wrong_size(name, sizes.get(name), digest))]


def unlisted(folder: str, digests: Digests | None) -> list[Damage]:
    """What a strict reader refuses: a manifest that lists no files, and files that it does not list."""
    if digests is None:
        return [Damage(MANIFEST, "lists no files")]
    strays = [name for name in sizes_in(folder, every=True) if name not in digests and name != MANIFEST]
    return [Damage(name, f"is not listed in {MANIFEST}") for name in strays]


def _wrong_size(name: str, size: int | None, digest: Digest) -> Damage | None:
    if size is None:
        return Damage(name, "is missing")
    if size != digest.size:
        return Damage(name, f"has {size:,} bytes, expected {digest.size:,}")
    return None


def wrong_digests(folder: str, digests: Digests, done: Callable[[Digest], None] = lambda digest: None) -> list[Damage]:
    """The files that are missing, of another size or with other bytes; reads all of them.

    ``done`` is called for each file that was read.
    """
    damages = wrong_sizes(folder, digests)
    missing = {damage.file for damage in damages}

    def read(name: str) -> Digest:
        found = digest_of(join(folder, name))
        done(found)
        return found

    found = _each((name for name in digests if name not in missing), read)
    changed = [Damage(name, _CHANGED) for name, digest in found.items() if digest.sha256 != digests[name].sha256]
    return sorted([*damages, *changed])


_CHANGED = "is not as it was written: its bytes have changed"


def require_same(data: bytes, written: Digest) -> None:
    """Compare the bytes of a small file with what was written; ValueError says what is wrong with them."""
    if len(data) != written.size:
        raise ValueError(f"has {len(data):,} bytes, expected {written.size:,}")
    if digest_of_bytes(data).sha256 != written.sha256:
        raise ValueError(_CHANGED)


def damaged(field: str, uri: str, damages: list[Damage], hint: str) -> Damaged:
    """What to raise about a result with damaged files."""
    shown = "; ".join(str(damage) for damage in damages[:3])
    more = f" and {len(damages) - 3} more" if len(damages) > 3 else ""
    return Damaged(field, redact(uri), f"is damaged: {shown}{more}", hint)
