"""The files of an unfinished run: blocks of rows, and a record for each portion that was listed to its end.

Their names contain everything a run needs to resume, so that it reads no file before it starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from ghost_ray.files import join, names_in, read_json, remove_file, resolve, write_bytes
from ghost_ray.sources import Failure

BLOCKS = "blocks"
RECORDS = "parts"
_BLOCK = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-(\w+)\.parquet")
_RECORD = re.compile(r"(\d+)-(\d+)-(\d+)-(\w+)\.json")


class BlockName(NamedTuple):
    """What the name of a block file says. The same images of the same round have the same name."""

    portion: int
    place: int  # of its first row
    rows: int
    unread: int  # rows whose image could not be read
    round: str  # of which run and pass it is

    @property
    def file(self) -> str:
        return f"{self.portion:06d}-{self.place:010d}-{self.rows}-{self.unread}-{self.round}.parquet"


class RecordName(NamedTuple):
    """What the name of a portion's record says."""

    portion: int
    images: int  # that are to be in the store or among the failures
    lost: int  # images, about, that could not be listed
    digest: str  # of the listing

    @property
    def file(self) -> str:
        return f"{self.portion:06d}-{self.images}-{self.lost}-{self.digest}.json"


@dataclass(frozen=True)
class Record:
    """What the listing of a portion found."""

    images: int  # that are wanted
    keys: str  # a digest of their keys, the same in any order
    digests: dict[str, str]  # of the listing of each part
    failures: list[Failure] = field(default_factory=list)  # what could not be listed


def block_names(staging: str) -> list[BlockName]:
    """The blocks written so far, sorted."""
    found = filter(None, map(_BLOCK.fullmatch, names_in(join(staging, BLOCKS))))
    return sorted(BlockName(int(each[1]), int(each[2]), int(each[3]), int(each[4]), each[5]) for each in found)


def record_names(staging: str) -> dict[int, RecordName]:
    """The records there are, by portion."""
    found = filter(None, map(_RECORD.fullmatch, names_in(join(staging, RECORDS))))
    return {int(each[1]): RecordName(int(each[1]), int(each[2]), int(each[3]), each[4]) for each in found}


def block_uri(staging: str, name: BlockName) -> str:
    return join(staging, BLOCKS, name.file)


def remove_portion(staging: str, blocks: list[BlockName], record: RecordName) -> None:
    """Forget what was written of a portion; the record goes last, since it says that there is something to forget."""
    for name in blocks:
        remove_file(block_uri(staging, name))
    remove_file(join(staging, RECORDS, record.file))


def block_files(staging: str) -> list[str]:
    """URIs of the blocks written so far, sorted."""
    return [block_uri(staging, name) for name in block_names(staging)]


def write_record(staging: str, name: RecordName, record: Record) -> None:
    write_bytes(join(staging, RECORDS, name.file), json.dumps(asdict(record)).encode())


def read_record(staging: str, name: RecordName) -> Record:
    content = read_json(join(staging, RECORDS, name.file))
    failures = [Failure(*failure) for failure in content["failures"]]
    return Record(content["images"], content["keys"], content["digests"], failures)


@contextlib.contextmanager
def whole_file(uri: str) -> Iterator[pa.NativeFile]:
    """A file that appears only when the block ends without an error.

    An object store shows an object when it is closed; on a disk the file is written aside and renamed.
    """
    filesystem, path = resolve(uri)
    if not isinstance(filesystem, fs.LocalFileSystem):
        with filesystem.open_output_stream(path) as handle:
            yield handle
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with filesystem.open_output_stream(aside) as handle:
            yield handle
        os.replace(aside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
