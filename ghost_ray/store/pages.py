"""Reads vectors directly from the pages of a Parquet file.

Arrow decodes two levels for every number of a list column, which takes several times as long as moving the numbers.
The pages of a store are plain, uncompressed and without gaps: their numbers have the same layout in the file as in
memory. Such pages are recognised here and read in place; Arrow reads all others.

The format is that of https://parquet.apache.org/docs/file-format: a column chunk is a row of pages, each with a header
in Thrift's compact encoding, then repetition levels (where lists begin), definition levels (what is missing), values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_DATA_PAGE, _PLAIN, _RLE = 0, 0, 3  # of the enumerations PageType and Encoding
_MOST_FIELDS = 64
_MOST_LEVELS = 8  # of structs in structs: the header of a page has three
_HEAD_BYTES = 1 << 16  # holds the header of a page and, unless its vectors are short, the levels


class _Unusual(Exception):
    """A page that Arrow must read."""


def read_vectors(source: pa.NativeFile, file: pq.ParquetFile, group: int, name: str, width: int) -> np.ndarray | None:
    """Return one row group's column of float32 lists of ``width`` as [rows, width]; None if Arrow has to read it.

    Parameters
    ----------
    source : pyarrow.NativeFile
        What ``file`` was opened from.
    file : pyarrow.parquet.ParquetFile
    group : int
        Which row group.
    name : str
        A column of type fixed_size_list<float32>[width].
    width : int
    """
    kind = file.schema_arrow.field(name).type
    if not pa.types.is_fixed_size_list(kind) or kind.list_size != width or kind.value_type != pa.float32():
        return None
    column = next((i for i in range(len(file.schema)) if file.schema.column(i).path.split(".")[0] == name), None)
    if column is None:
        return None
    levels = file.schema.column(column)
    rows = file.metadata.row_group(group).num_rows
    chunk = file.metadata.row_group(group).column(column)
    plain = chunk.compression == "UNCOMPRESSED" and not chunk.has_dictionary_page and chunk.physical_type == "FLOAT"
    size = chunk.total_compressed_size
    # A list that lost its values would need fewer bytes: never allocate on the word of a footer alone.
    if not plain or levels.max_repetition_level != 1 or chunk.num_values != rows * width or size < 4 * rows * width:
        return None
    start = chunk.data_page_offset
    if not isinstance(source, pa.OSFile):  # one request for the whole chunk if requests are slow
        source, start = pa.BufferReader(source.read_at(size, start)), 0
    values = np.empty((rows, width), np.float32)
    try:
        _read_pages(source, start, start + size, levels.max_definition_level, values)
    except (_Unusual, IndexError):
        return None
    return values


def _read_pages(source: pa.NativeFile, at: int, end: int, defined: int, values: np.ndarray) -> None:
    """Fill ``values`` [rows, width] from the pages at ``at``; ``defined`` is the level of a number that is there."""
    from ghost_ray.store._levels import all_equal_or_first

    rows, width = values.shape
    filled = 0
    while filled < rows:
        head = _bytes(source, at, min(_HEAD_BYTES, end - at))
        header, begin = _struct(head, 0)
        page = header.get(5)
        if header.get(1) != _DATA_PAGE or not isinstance(page, dict) or header.get(2) != header.get(3):
            raise _Unusual
        count, size = page.get(1), header.get(3)
        if not isinstance(count, int) or not isinstance(size, int):
            raise _Unusual
        lists, beyond = divmod(count, width)
        level_bytes = size - 4 * count
        fits = 0 < lists <= rows - filled and level_bytes >= 0 and at + begin + size <= end
        if beyond or not fits or (page.get(2), page.get(3), page.get(4)) != (_PLAIN, _RLE, _RLE):
            raise _Unusual
        if begin + level_bytes > len(head):
            head = _bytes(source, at, begin + level_bytes)
        repetition, rest = _length_prefixed(head[begin : begin + level_bytes])
        definition, rest = _length_prefixed(rest)
        begins = all_equal_or_first(repetition, 1, count, width, 0, 1)
        present = all_equal_or_first(definition, defined.bit_length(), count, 1, defined, defined)
        if len(rest) or not (begins and present):
            raise _Unusual
        source.seek(at + begin + level_bytes)
        if source.readinto(values[filled : filled + lists]) != 4 * count:
            raise _Unusual
        filled += lists
        at += begin + size


def _bytes(source: pa.NativeFile, at: int, size: int) -> np.ndarray:
    return np.frombuffer(source.read_at(size, at), np.uint8)


def _length_prefixed(body: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(body) < 4:
        raise _Unusual
    stop = 4 + int.from_bytes(body[:4].tobytes(), "little")
    if stop > len(body):
        raise _Unusual
    return body[4:stop], body[stop:]


def _struct(data: np.ndarray, at: int, level: int = 1) -> tuple[dict[int, Any], int]:
    """Read a struct in Thrift's compact encoding: its integers and structs by field number, and where it ends."""
    if level > _MOST_LEVELS:
        raise _Unusual
    fields: dict[int, Any] = {}
    field = 0
    for _ in range(_MOST_FIELDS):
        head = int(data[at])
        at += 1
        if head == 0:
            return fields, at
        step, kind = head >> 4, head & 15
        if not step:
            raise _Unusual
        field += step
        if kind in (5, 6):  # i32, i64, in zigzag
            number, at = _varint(data, at)
            fields[field] = (number >> 1) ^ -(number & 1)
        elif kind == 8:  # bytes
            length, at = _varint(data, at)
            at += length
        elif kind == 12:
            fields[field], at = _struct(data, at, level + 1)
        elif kind not in (1, 2):  # a boolean is all in its head
            raise _Unusual
    raise _Unusual


def _varint(data: np.ndarray, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 64:
        byte = int(data[at])
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise _Unusual
