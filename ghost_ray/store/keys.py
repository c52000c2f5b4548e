"""The keys that name rows, and a stable hash of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def hash_keys(keys: pa.Array, seed: int = 0) -> np.ndarray:
    """A stable 64-bit hash of each key, [n] uint64; another seed gives another one."""
    from pandas.util import hash_array

    values = np.asarray(keys.to_numpy(zero_copy_only=False), dtype=object)
    hashed: np.ndarray = hash_array(values, hash_key=f"{seed % (1 << 64):016x}", categorize=False)
    return hashed


def row_keys(rows: np.ndarray, total: int) -> pa.Array:
    """The numbers of rows among ``total`` as their keys, if they have no names."""
    width = len(str(total))
    return pa.array([f"{row:0{width}d}" for row in rows.tolist()], pa.string())
