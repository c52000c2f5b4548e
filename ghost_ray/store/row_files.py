"""Row files: uncompressed Arrow IPC files with one record batch per row group.

A file on a disk is mapped, so that its numbers are used where they are. Of a file elsewhere the footer is one request,
and so is each record batch of which all vectors are read.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa
from pyarrow import fs

from ghost_ray.files import resolve

_AHEAD = 64 << 10  # bytes that take an object store no longer than one byte
_FOOTER_END = 10  # the length of the footer, and the word ARROW1
_MOST_METADATA = 64 << 20  # bytes of a footer or of the description of a batch: a million batches, a million columns
_RECORD_BATCH = 3  # of the enumeration MessageHeader


def write_rows(stream: Any, rows: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write a row file: the record batches, or a table as one record batch."""
    with pa.ipc.new_file(stream, schema) as writer:
        for batch in as_batches(rows) if isinstance(rows, pa.Table) else rows:
            writer.write_batch(batch)


def as_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """A table as one record batch; none if it has no rows."""
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return batches


@contextlib.contextmanager
def open_rows(uri: str, columns: Sequence[str] | None = None) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """A row file of this program, or some columns of it. Files of others are read with `RowReader`."""
    with _opened(uri) as source:
        yield _arrow_reader(source.file, columns)


class RowReader:
    """Reads some columns of a row file that anybody may have written.

    A record batch is checked as far as using its numbers needs it: it lies in the file, is not compressed (a few bytes
    could become any number), and its columns are as long as they claim to be.

    Parameters
    ----------
    columns : sequence of str
        Each must be in the file once; without ``group``, that of all rows is null.
    """

    def __init__(self, uri: str, columns: Sequence[str]) -> None:
        with contextlib.ExitStack() as opened:
            self._source = opened.enter_context(_opened(uri))
            self.schema: pa.Schema = _arrow_reader(self._source.file).schema
            if "group" not in self.schema.names:
                self.schema = self.schema.append(pa.field("group", pa.string()))
            for name in columns:
                if self.schema.names.count(name) != 1:
                    raise KeyError(f"has {'two columns' if name in self.schema.names else 'no column'} {name}")
            vectors = {field.name for field in self.schema if pa.types.is_fixed_size_list(field.type)}
            self._whole = bool(vectors) and vectors <= set(columns)
            # Arrow copies the columns that it is to choose; the whole batch it takes as it is.
            choose = isinstance(self._source, _Remote) and not self._whole
            self._reader = _arrow_reader(self._source.file, columns if choose else None)
            self._blocks = _blocks(self._source.file)
            self._columns = list(columns)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def __len__(self) -> int:
        """How many record batches there are."""
        return len(self._blocks)

    def batch(self, number: int) -> pa.RecordBatch:
        """One record batch; arrays of an earlier one stay valid."""
        if number >= len(self._blocks):
            raise IndexError(f"holds {len(self._blocks)} record batches, expected more than {number}")
        block = self._blocks[number]
        if min(block) < 0 or block.stop > self._source.file.size() or block.metadata > _MOST_METADATA:
            raise ValueError(f"record batch {number} is not where the footer says")
        self._source.turn_to(block.offset, block.stop - block.offset if self._whole else _AHEAD)
        _refuse_compressed(self._source.file.read_at(block.metadata, block.offset))
        batch = self._reader.get_batch(number)
        if batch.num_rows > block.body:
            raise ValueError(f"record batch {number} claims more rows than it has bytes")
        if "group" in self._columns and "group" not in batch.schema.names:
            batch = batch.append_column("group", pa.nulls(batch.num_rows, pa.string()))
        batch = batch.select(self._columns)
        batch.validate()
        for name in self._columns:
            if pa.types.is_string(batch.schema.field(name).type):
                batch.column(name).validate(full=True)
        return batch


class _Mapped:
    """A file on a disk."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as handle:
            empty = os.fstat(handle.fileno()).st_size == 0  # which cannot be mapped
            self._map = None if empty else mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        self.file: pa.NativeFile = pa.BufferReader(pa.py_buffer(self._map or b""))

    def turn_to(self, start: int, size: int) -> None:
        """Return the pages of earlier record batches, which would count as this process's; if used, they come back."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


class _Remote:
    """A file of an object store: what was fetched last is kept, because Arrow asks for a few bytes at a time."""

    closed = False

    def __init__(self, file: pa.NativeFile) -> None:
        self._file, self._size, self._at = file, file.size(), 0
        self._start, self._held = 0, b""
        self.turn_to(max(0, self._size - _AHEAD), _AHEAD)
        self.file = pa.PythonFile(self, mode="r")

    def turn_to(self, start: int, size: int) -> None:
        """Fetch a range in one request, to answer what is read of it."""
        if not self._holds(start, size := max(0, min(size, self._size - start))):
            self._start, self._held = start, self._file.read_at(size, start)

    def _holds(self, start: int, size: int) -> bool:
        return self._start <= start and start + size <= self._start + len(self._held)

    def read_buffer(self, size: int) -> pa.Buffer:
        """What Arrow reads; columns that were not fetched are not kept either."""
        at, size = self._at, max(0, min(size, self._size - self._at))
        self._at += size
        if not self._holds(at, size):
            if size > _AHEAD:
                return pa.py_buffer(self._file.read_at(size, at))
            self.turn_to(at, _AHEAD)
        return pa.py_buffer(self._held).slice(at - self._start, size)

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        self._at = place + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at


@contextlib.contextmanager
def _opened(uri: str) -> Iterator[_Mapped | _Remote]:
    filesystem, path = resolve(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        yield _Mapped(path)
    else:
        with filesystem.open_input_file(path) as file:
            yield _Remote(file)


def _arrow_reader(file: pa.NativeFile, columns: Sequence[str] | None = None) -> pa.ipc.RecordBatchFileReader:
    reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False))
    if columns is None:
        return reader
    fields = [reader.schema.get_field_index(name) for name in columns if name in reader.schema.names]
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields))


# Arrow's Python interface says neither where a record batch is nor whether it is compressed. Both are in the file's
# metadata, which is FlatBuffers: a table begins with the distance to a list of the places of its fields.
# https://github.com/apache/arrow/tree/main/format: File.fbs, Message.fbs


class _Block(NamedTuple):
    """Where a record batch is: its description, then its columns."""

    offset: int
    metadata: int
    body: int

    @property
    def stop(self) -> int:
        return self.offset + self.metadata + self.body


def _blocks(file: pa.NativeFile) -> list[_Block]:
    """The record batches of a file, from its footer, which Arrow has read and checked before."""
    size = file.size()
    length = int.from_bytes(file.read_at(4, size - _FOOTER_END), "little")
    if length > _MOST_METADATA:
        raise ValueError(f"its footer has {length:,} bytes, more than the {_MOST_METADATA:,} allowed")
    footer = file.read_at(length, size - _FOOTER_END - length)
    (table,) = struct.unpack_from("<I", footer)
    place = _field(footer, table, 3)
    if not place:
        return []
    place += struct.unpack_from("<I", footer, place)[0]
    (count,) = struct.unpack_from("<I", footer, place)
    return [_Block(*found) for found in struct.iter_unpack("<qi4xq", footer[place + 4 : place + 4 + 24 * count])]


def _refuse_compressed(message: bytes) -> None:
    """Refuse what is not the description of an uncompressed record batch; Arrow checks the rest."""
    try:
        mark, _, root = struct.unpack_from("<iiI", message)
        kind = _field(message, 8 + root, 1)
        header = _field(message, 8 + root, 2)
        if mark != -1 or not kind or not header or message[kind] != _RECORD_BATCH:
            raise ValueError("holds something else than record batches")
        table = header + struct.unpack_from("<I", message, header)[0]
        if _field(message, table, 3):
            raise ValueError("its record batches are compressed, expected uncompressed ones")
    except (struct.error, IndexError):
        raise ValueError("the description of a record batch is damaged") from None


def _field(data: bytes, table: int, number: int) -> int:
    """The place of a field of a table; 0 if it is not there."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, fields)
    place = struct.unpack_from("<H", data, fields + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
    return table + place if place else 0
