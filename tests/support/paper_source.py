"""The numbers in the paper's LaTeX source, cell by cell, as printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NETWORKS = {
    "MAE-H": "mae-h",
    "ConvNeXtV2-H": "convnextv2-h",
    "ConvNextV2-H": "convnextv2-h",
    "Swin-T": "swin-t",
    "DenseNet-121": "densenet-121",
}
UNKNOWNS = {
    "21K-P Easy": "21k-p-easy",
    "easy_21k": "21k-p-easy",
    "21K-P Hard": "21k-p-hard",
    "hard_21k": "21k-p-hard",
    "NINCO": "ninco",
    "OpenImage-O": "openimage-o",
    "OpenImage_O": "openimage-o",
    "Places": "places",
    "SUN": "sun",
    "Textures": "textures",
    "iNaturalist": "inaturalist",
}
METHODS = ("GHOST", "MSP", "MaxLogit", "NNGuide", "Energy", "SCALE", "REACT", "KNN")
STATISTICS = {"Mean": "auroc_mean", "STD": "auroc_std", "P-Value": "auroc_p"}
# The two small tables of the main text do not name their network in a heading; their captions do.
SMALL = {"tab:mae-fatc": "f_at_c95", "tab:mae-cov": "ccr_cv"}


@dataclass(frozen=True)
class Cell:
    """One number of a table; ``printed`` is the text in the source, bold marks apart."""

    label: str  # \label of the table
    line: int
    network: str
    unknown: str
    method: str
    metric: str
    printed: str
    bold: bool

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        return self.label, self.network, self.unknown, self.method, self.metric


def cells(lines: list[str]) -> list[Cell]:
    """Every cell with a number in the tables of the paper."""
    return [cell for label, first, body in _tables(lines) for cell in _table(label, first, body)]


def _tables(lines: list[str]) -> Iterator[tuple[str, int, list[str]]]:
    """Label, number of the first line and lines of each table environment."""
    starts = [n for n, line in enumerate(lines) if line.startswith(r"\begin{table")]
    for start in starts:
        end = next(n for n in range(start, len(lines)) if lines[n].startswith(r"\end{table"))
        body = lines[start:end]
        label = re.search(r"\\Caption\[([^]]+)\]", "\n".join(body))
        assert label is not None
        yield label[1], start + 1, body


def _table(label: str, first: int, lines: list[str]) -> Iterator[Cell]:
    networks, methods, unknown = ["mae-h"], list[str](), ""
    metrics = [SMALL[label]] if label in SMALL else ["auoscr", "auroc", "fpr95"]
    for number, line in enumerate(lines, first):
        if heading := re.match(r"\\subfloat\[([\w-]+)( .*)?\]", line):
            networks = [NETWORKS[heading[1]]]
            metrics = {None: metrics, " Coefficient of Variance": ["ccr_cv"], " F@C95": ["f_at_c95"]}[heading[2]]
        elif "&" not in line or "AUOSCR" in line:
            continue
        elif "MAE-H" in line and "ConvNeXtV2-H" in line:
            networks = ["mae-h", "convnextv2-h"]
        elif "MaxLogit" in line:
            words = re.findall(r"[A-Za-z]+", line.replace("MSC", "MSP"))
            methods = [word.lower() for word in words if word in METHODS]
        elif re.search(r"\d", _row(line)[-1]):
            row = _row(line)
            unknown = UNKNOWNS.get(row[0], unknown)
            if row[1] in STATISTICS:
                names, values = [STATISTICS[row[1]]], row[2:]
            else:
                names, values = metrics, row[1:]
            columns = [(network, method) for network in networks for method in methods[: len(methods) // len(networks)]]
            assert len(values) == len(columns), f"line {number}: {len(values)} cells under {len(columns)} methods"
            for (network, method), value in zip(columns, values, strict=True):
                numbers = re.findall(r"\**[\d.]+(?:e-\d+)?\**", value)
                assert len(numbers) in (0, len(names)), f"line {number}: {value!r} for {names}"
                for metric, text in zip(names, numbers, strict=False):
                    yield Cell(label, number, network, unknown, method, metric, text.strip("*"), "*" in text)


def _row(line: str) -> list[str]:
    r"""A row of a table as plain text, `*number*` where it was bold."""
    line = line.split(r"\\")[0]
    line = re.sub(r"\\textbf\{([^{}]*)\}", r"*\1*", line)
    line = re.sub(r"\\emph\{([^{}]*)\}", r"\1", line)
    line = re.sub(r"\$\\(?:up|down)arrow\$", " ", line)
    line = re.sub(r"\\multicolumn\{1\}\{[^{}]*\}\{([^{}]*)\}", r"\1", line)
    return [cell.replace(r"\_", "_").strip() for cell in line.split("&")]
