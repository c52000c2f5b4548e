"""The layout of a store on disk: its manifest, its files and their sizes."""

from __future__ import annotations

from typing import ClassVar, Literal, TypedDict

import pyarrow as pa
from pydantic import Field

from ghost_ray.files.manifest import Manifest

HEAD = "head.safetensors"
FAILURES = "failures.parquet"
FAILURES_SCHEMA = pa.schema([("key", pa.string()), ("stage", pa.string()), ("error", pa.string())])
STORE_FORMAT = 4  # since the rows are Arrow IPC files; formats 1 to 3 were never released
UNKNOWN = -1
# A row group this large keeps the per-group overhead small; a task reading a few of them stays in memory.
GROUP_BYTES = 8 << 20
FILE_BYTES = 256 << 20


class StoreManifest(Manifest):
    """Manifest of a store.

    ``layout`` clustered: rows are sorted by label, row groups hold whole classes. ``order`` hash: the rows of a class
    are in the order of `hash_keys` of their keys, so that the first ones are a random sample.
    """

    reads: ClassVar[tuple[int, ...]] = (STORE_FORMAT,)

    format_version: int = STORE_FORMAT
    kind: Literal["store"] = "store"
    layout: Literal["clustered", "unordered"] = "unordered"
    order: Literal["hash"] | None = None
    files: list[str] | None = None  # their names in the order of the index; None if there is no index
    class_names: list[str] | None = None
    has_head: bool = True
    failures: int = Field(0, ge=0)
    accuracy: float | None = Field(None, ge=0, le=1)  # of the rows with a label, where it was counted
    seconds: dict[str, float] = {}
    batch_size: int | None = None  # of the forward passes: smaller than requested if that did not fit into memory

    def row_names(self) -> list[str]:
        """The names of the files below ``rows/`` whose digests were recorded."""
        return [name.removeprefix("rows/") for name in self.digests or {} if name.startswith("rows/")]


# Of one class: its index, its name and how many rows there are.
ClassCount = TypedDict("ClassCount", {"class": int, "name": str, "n": int})
