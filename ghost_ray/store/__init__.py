"""The store: embeddings, labels and predictions of one data set under one network, on disk.

Layout::

    STORE/manifest.json         written last: its presence means the store is complete
    STORE/head.safetensors      weight [K, D], bias [K] of the network's last linear layer, where it is known
    STORE/rows/*.arrow          key, label, pred, group, embedding [D], and logits [K] where there is no linear head
    STORE/row_groups.safetensors  of each row group its file, its rows, its smallest and its largest label
    STORE/failures.parquet      key, stage, error

A row group is a record batch of an Arrow IPC file. In a *clustered* store the rows are sorted by label and every row
group holds whole classes (or a part of one very large class), so a reader gets the samples of a class without reading
anything else.
"""

from ghost_ray.store.arrays import ArrayStore
from ghost_ray.store.layout import (
    FAILURES,
    FAILURES_SCHEMA,
    HEAD,
    STORE_FORMAT,
    UNKNOWN,
    ClassCount,
    StoreManifest,
)
from ghost_ray.store.reader import Store
from ghost_ray.store.row_files import open_rows, write_rows
from ghost_ray.store.row_groups import INDEX, RowFile, RowGroup, RowGroups, inspect_file, joined
from ghost_ray.store.writer import (
    ClusteredWriter,
    finish_store,
    group_ends,
    hash_keys,
    numbers_of,
    row_keys,
    row_order,
    row_schema,
    to_table,
    vectors_of,
    write_failures,
    write_head,
)

__all__ = [
    "FAILURES",
    "FAILURES_SCHEMA",
    "HEAD",
    "INDEX",
    "STORE_FORMAT",
    "UNKNOWN",
    "ArrayStore",
    "ClassCount",
    "ClusteredWriter",
    "RowFile",
    "RowGroup",
    "RowGroups",
    "Store",
    "StoreManifest",
    "finish_store",
    "group_ends",
    "hash_keys",
    "inspect_file",
    "joined",
    "numbers_of",
    "open_rows",
    "row_keys",
    "row_order",
    "row_schema",
    "to_table",
    "vectors_of",
    "write_failures",
    "write_head",
    "write_rows",
]
