"""OpenOOD image lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.raw_sources import refusal

from ghost_ray.sources import open_source


@pytest.mark.parametrize("line", ["../up.png 1", "/etc/passwd 1", "a/../../b.png 0", "a\x07.png 1"])
def test_a_list_line_may_not_leave_its_root(tmp_path: Path, line: str) -> None:
    (tmp_path / "list.txt").write_text(f"good.png 0\n{line}\n")
    assert "line 2" in refusal(tmp_path / "list.txt")


def test_list_lines(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("./b c.png 3\r\n\n a.png\t-1\nd e.jpg\n")
    source = open_source(str(tmp_path / "list.txt"))
    rows = dict(zip(source.preview.items["key"].to_pylist(), source.preview.items["label"].to_pylist(), strict=True))
    assert rows == {"a.png": "-1", "b c.png": "3", "d e.jpg": None}
