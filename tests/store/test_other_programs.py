"""A store is opened by other programs: the user guide's lines run, and they see what was written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset as ds
import pytest
from support.stores import Toy, read_row_files, write_store

GUIDE = (Path(__file__).parents[2] / "docs/user-guide.md").read_text()
BLOCKS = [
    block.split("```")[0] for block in GUIDE.split("## 11. A store")[1].split("## 12.")[0].split("```python\n")[1:]
]


@pytest.fixture
def rows(tmp_path: Path, rng: np.random.Generator) -> Path:
    toy = Toy.make(rng)
    write_store(tmp_path / "stores" / "train", *toy.known(rng, 90), toy, group_rows=10)
    return tmp_path / "stores" / "train" / "rows"


@pytest.mark.parametrize("block", BLOCKS, ids=["pyarrow", "polars", "pandas", "duckdb"])
def test_the_lines_of_the_guide_run(rows: Path, tmp_path: Path, block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "90" in done.stdout or "accuracy" in done.stdout


def test_they_see_what_was_written(rows: Path) -> None:
    written = read_row_files(rows)
    embedding = np.stack(written["embedding"].to_numpy())
    frame = pl.scan_ipc(rows / "*.arrow").collect()
    assert frame["key"].to_list() == written["key"].to_pylist()
    np.testing.assert_array_equal(frame["embedding"].to_numpy(), embedding)
    found = ds.dataset(rows, format="ipc")  # which the query names
    assert found.count_rows() == 90
    numbers = duckdb.sql("SELECT label, embedding FROM found ORDER BY key").fetchnumpy()
    order = np.argsort(written["key"].to_numpy())
    np.testing.assert_array_equal(np.stack(numbers["embedding"]), embedding[order])
    np.testing.assert_array_equal(numbers["label"], written["label"].to_numpy()[order])
