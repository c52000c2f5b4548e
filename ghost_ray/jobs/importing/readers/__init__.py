"""Files that hold arrays, one reader per kind of content."""

from ghost_ray.jobs.importing.readers import (  # noqa: F401 - they register their readers
    csv_tables,
    npy_files,
    parquet_tables,
    safetensors_files,
    tensor_files,
)
from ghost_ray.jobs.importing.readers.array_file import (
    READABLE,
    ArrayFile,
    Entry,
    open_arrays,
    readable_kinds,
    unreadable,
)

__all__ = ["READABLE", "ArrayFile", "Entry", "open_arrays", "readable_kinds", "unreadable"]
