"""Parquet in the Hugging Face image layout: a column ``image: {bytes, path}`` and a column ``label``.

A shard is a file, or some row groups of a large one.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ghost_ray.config.limits import Stage
from ghost_ray.errors import InputError
from ghost_ray.sources.image_formats import container_format, register, runs_of_one_file
from ghost_ray.sources.reading import MAX_ENCODED_BYTES, SteadyFile, read_error, too_large
from ghost_ray.sources.source import REST, Failure, Image, Scan, Shard, make_items

IMAGE_COLUMNS = ("image", "img", "jpg", "png")
LABEL_COLUMNS = ("label", "labels", "cls", "class", "target", "fine_label")
_ROWS_AT_A_TIME = 16
_ROWS_OF_A_SCAN = 128  # where the images are read as well
_SHARD_BYTES = 128 << 20
_BUFFER = 4 << 20  # streamed from the file: a row group may be larger than memory


@dataclass(frozen=True)
class ParquetReader:
    """Items are rows of Parquet files."""

    filesystem: fs.FileSystem
    base: str

    def scan(self, shard: Shard, bodies: bool = False) -> Iterator[Scan]:
        try:
            parquet = self._open(shard.file)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            yield Scan(make_items([], [], []), [Failure(shard.name, Stage.READ, read_error(error), REST)], share=0.0)
            return
        with parquet:
            column = image_column(parquet.schema_arrow, shard.file)
            label = next((name for name in LABEL_COLUMNS if name in parquet.schema_arrow.names), None)
            names = _class_names(parquet.schema_arrow, label)
            rows = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
            firsts = np.cumsum([0, *rows])
            own = np.array_split(np.arange(len(rows)), shard.stop)[shard.start].tolist()
            whole = max(1, sum(rows[group] for group in own))
            for group in own:
                first = int(firsts[group])
                try:
                    items = self._items(parquet, shard.file, group, first, label)
                except (OSError, pa.ArrowException) as error:
                    problem = f"the labels of a row group cannot be read: {read_error(error)}"
                    failure = Failure(f"{shard.file}/@{first:08d}", Stage.READ, problem, rows[group] / whole)
                    yield Scan(make_items([], [], []), [failure], share=0.0)
                    continue
                step = _ROWS_OF_A_SCAN if bodies else max(1, items.num_rows)
                images = _rows(parquet, column, _keys_by_row(items)) if bodies else None
                for start in range(0, items.num_rows, step):
                    some = items.slice(start, step)
                    read = None if images is None else list(islice(images, some.num_rows))
                    yield Scan(some, [], names, read, some.num_rows / whole)
            if not own:
                yield Scan(make_items([], [], []), [], names)

    def _items(self, parquet: pq.ParquetFile, file: str, group: int, first: int, label: str | None) -> pa.Table:
        """The rows of a group, with their labels as strings; null where there is no such column."""
        count = parquet.metadata.row_group(group).num_rows
        labels = pa.nulls(count, pa.string())
        if label is not None:
            labels = parquet.read_row_group(group, [label], use_threads=False)[label].combine_chunks().cast(pa.string())
        keys = [f"{file}/{row:08d}" for row in range(first, first + count)]
        files = pa.repeat(pa.scalar(file), count)
        return make_items(keys, files, labels.dictionary_encode(), starts=range(first, first + count))

    def read(self, items: pa.Table) -> Iterator[Image]:
        for file, run in runs_of_one_file(items):
            wanted = _keys_by_row(run)
            try:
                parquet = self._open(file)
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                yield from (Image(key, None, read_error(error)) for key in wanted.values())
                continue
            with parquet:
                yield from _rows(parquet, image_column(parquet.schema_arrow, file), wanted)

    def _open(self, file: str) -> pq.ParquetFile:
        steady = SteadyFile(self.filesystem, posixpath.join(self.base, file))
        return pq.ParquetFile(pa.PythonFile(steady, "r"), pre_buffer=False, buffer_size=_BUFFER)


def _keys_by_row(items: pa.Table) -> dict[int, str]:
    return dict(zip(items["start"].to_pylist(), items["key"].to_pylist(), strict=True))


def _rows(parquet: pq.ParquetFile, column: str, wanted: dict[int, str]) -> Iterator[Image]:
    """The wanted rows, row group by row group; a broken group does not affect the others."""
    groups = range(parquet.num_row_groups)
    ends = np.cumsum([parquet.metadata.row_group(group).num_rows for group in groups])
    places = np.searchsorted(ends, list(wanted), side="right")
    for group in np.unique(places).tolist():
        keys = {row: key for (row, key), place in zip(wanted.items(), places, strict=True) if place == group}
        first = int(ends[group]) - parquet.metadata.row_group(group).num_rows
        try:
            yield from _rows_of_group(parquet, group, first, column, keys)
        except (OSError, pa.ArrowException) as error:
            yield from (Image(key, None, read_error(error)) for key in keys.values())


def _rows_of_group(
    parquet: pq.ParquetFile, group: int, first: int, column: str, keys: dict[int, str]
) -> Iterator[Image]:
    """Takes each row out of `keys` as it is read, so that those of a broken page remain."""
    for batch in parquet.iter_batches(_ROWS_AT_A_TIME, row_groups=[group], columns=[column], use_threads=False):
        values = batch.column(0)
        data = pc.struct_field(values, "bytes") if pa.types.is_struct(values.type) else values
        for row in range(first, first + len(data)):
            key = keys.pop(row, None)
            if key is not None:
                yield _image(key, data[row - first])
        first += len(data)
        if not keys:
            return


def _image(key: str, cell: pa.Scalar) -> Image:
    content = cell.as_buffer() if isinstance(cell, pa.BinaryScalar) else None
    if content is None:
        return Image(key, None, "the row holds no image bytes")
    if content.size > MAX_ENCODED_BYTES:
        return Image(key, None, too_large(content.size))
    return Image(key, content.to_pybytes(), None)


def image_column(schema: pa.Schema, file: str) -> str:
    """The column with the images: a struct with ``bytes``, or a binary column with a common name."""

    def holds_images(name: str) -> bool:
        kind = schema.field(name).type
        if pa.types.is_struct(kind):
            return bool(kind.get_field_index("bytes") >= 0)
        return name in IMAGE_COLUMNS and bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    # The common names first, then any column of the right type.
    names: list[str] = schema.names
    for name in [*(name for name in IMAGE_COLUMNS if name in names), *names]:
        if holds_images(name):
            return name
    problem = f"has no image column; its columns are {', '.join(schema.names)}"
    raise InputError("data", file, problem, "the Hugging Face layout is image: {bytes, path}, label")


def _class_names(schema: pa.Schema, label: str | None) -> list[str] | None:
    """Names of a ClassLabel column, from the metadata the `datasets` library writes."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    try:
        names = json.loads(metadata or "{}")["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


PARQUET = register(
    container_format(
        "parquet",
        "Parquet files in the Hugging Face layout: a column `image` with the bytes and a column `label`",
        ".parquet",
        ParquetReader,
        _SHARD_BYTES,
    )
)
