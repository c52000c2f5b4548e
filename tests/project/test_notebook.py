"""The example notebook runs from top to bottom, and shows what it is to show."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from PIL import Image

NOTEBOOK = Path(__file__).parents[2] / "docs/examples/digits.ipynb"


def shown(notebook: Any) -> list[dict[str, Any]]:
    """What the cells put out: the data of each output by kind."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    return [dict(output.get("data") or {"text/plain": output.text}) for output in outputs]


def check(outputs: list[dict[str, Any]]) -> None:
    text = "\n".join(output.get("text/html", output["text/plain"]) for output in outputs)
    assert "95 % of the known digits are accepted, and " in text
    assert "tests reject normality (Holm, α = 0.05, all tests as one family)" in text
    assert "<th>GHOST</th><th>MSP</th><th>MaxLogit</th><th>Energy</th><th>KNN (k=10)</th>" in text
    assert "openood_fpr95" in text
    pictures = [base64.b64decode(output["image/png"]) for output in outputs if "image/png" in output]
    assert len(pictures) == 1
    with Image.open(io.BytesIO(pictures[0])) as picture:
        assert picture.width > 600
        assert len(picture.convert("RGB").quantize(64).getcolors()) > 10, "the figure is blank"


def test_it_is_kept_with_its_output() -> None:
    check(shown(nbformat.read(NOTEBOOK, 4)))


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path: Path) -> None:
    kept = nbformat.read(NOTEBOOK, 4)
    fresh = nbformat.read(NOTEBOOK, 4)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(fresh, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = shown(fresh)
    check(outputs)
    assert [sorted(output) for output in outputs] == [sorted(output) for output in shown(kept)]
