"""How large a block is, and rows of a listing on their way into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ghost_ray.sources import Scan

# A kill loses the block an actor is at and the one being written: together well below 1,000 images.
MAX_BLOCK_ROWS = 384
_PIXEL_BYTES = 32 << 20
_BLOCK_BYTES = 64 << 20  # of encoded images that travel with a block


def rows_per_block(images: int, batch_size: int, image_bytes: int, workers: int) -> int:
    """Whole batches, few enough images to lose little by a kill, and enough blocks to keep all actors busy.

    At least two batches where there are images enough: the second is copied while the first is computed.
    """
    fits = max(2 * batch_size, min(MAX_BLOCK_ROWS, _PIXEL_BYTES // image_bytes))
    return max(1, min(fits, images // (4 * workers)) // batch_size) * batch_size


@dataclass
class BlockCutter:
    """Takes rows in order and gives them in blocks of ``rows``."""

    rows: int
    _tables: list[pa.Table] = field(default_factory=list)
    _held: int = 0
    _bytes: int = 0

    def add(self, scan: Scan, at: np.ndarray, labels: np.ndarray, places: np.ndarray, portion: int) -> None:
        """The rows ``at`` of a scan."""
        if not len(at):
            return
        items = scan.items.take(pa.array(at))
        images = None if scan.images is None else [scan.images[row] for row in at]
        data = [image.data for image in images] if images is not None else [None] * len(at)
        errors = [image.error for image in images] if images is not None else [None] * len(at)
        columns = {name: items[name] for name in ("key", "file", "start", "size")}
        columns |= {
            "label": pa.array(labels, pa.int32()),
            "portion": pa.array(np.full(len(at), portion, np.int32)),
            "place": pa.array(places, pa.int64()),
            "data": pa.array(data, pa.large_binary()),
            "error": pa.array(errors, pa.string()),
        }
        self._tables.append(pa.table(columns))
        self._held += len(at)
        self._bytes += sum(len(body) for body in data if body is not None)

    def full(self) -> Iterator[pa.Table]:
        """The whole blocks there are; all rows, where their images are heavy."""
        if self._bytes > _BLOCK_BYTES:
            yield from self.rest()
        if self._held >= self.rows:
            table = pa.concat_tables(self._tables)
            whole = self._held // self.rows * self.rows
            left = table.slice(whole)
            self._tables, self._held, self._bytes = [left], left.num_rows, left["data"].nbytes
            # Taken, not sliced: a slice would carry the whole listing where it is sent.
            for start in range(0, whole, self.rows):
                yield table.take(pa.array(np.arange(start, start + self.rows)))

    def rest(self) -> Iterator[pa.Table]:
        """Everything that is left."""
        tables, self._tables, self._held, self._bytes = self._tables, [], 0, 0
        if not tables:
            return
        table = pa.concat_tables(tables)
        for start in range(0, table.num_rows, self.rows):
            yield table.take(pa.array(np.arange(start, min(start + self.rows, table.num_rows))))
