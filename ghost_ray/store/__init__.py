"""The store: embeddings, labels and predictions of one data set under one network, on disk.

Layout::

    STORE/manifest.json         written last: its presence means the store is complete
    STORE/head.safetensors      weight [K, D], bias [K] of the network's last linear layer, where it is known
    STORE/rows/*.parquet        key, label, pred, embedding [D], and logits [K] where there is no linear head
    STORE/row_groups.safetensors  of each row group its file, its rows, its smallest and its largest label
    STORE/failures.parquet      key, stage, error

In a *clustered* store the rows are sorted by label and every Parquet row group holds whole classes (or a part
of one very large class), so a reader gets the samples of a class without reading anything else.
"""

from ghost_ray.store.in_memory import ArrayStore
from ghost_ray.store.keys import hash_keys, row_keys
from ghost_ray.store.layout import (
    FAILURES,
    HEAD,
    STORE_FORMAT,
    ClassCount,
    StoreManifest,
    row_schema,
    to_table,
)
from ghost_ray.store.pages import read_vectors
from ghost_ray.store.pieces import Piece, inspect_file, joined, open_parquet
from ghost_ray.store.reader import Store
from ghost_ray.store.row_index import INDEX, UNKNOWN, RowFile, RowGroup
from ghost_ray.store.writer import ClusteredWriter, finish_store, group_ends, row_order, write_failures, write_head

__all__ = [
    "FAILURES",
    "HEAD",
    "INDEX",
    "STORE_FORMAT",
    "UNKNOWN",
    "ArrayStore",
    "ClassCount",
    "ClusteredWriter",
    "Piece",
    "RowFile",
    "RowGroup",
    "Store",
    "StoreManifest",
    "finish_store",
    "group_ends",
    "hash_keys",
    "inspect_file",
    "joined",
    "open_parquet",
    "read_vectors",
    "row_keys",
    "row_order",
    "row_schema",
    "to_table",
    "write_failures",
    "write_head",
]
