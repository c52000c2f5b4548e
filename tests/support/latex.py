"""A strict reader of the LaTeX that tables are made of: what it accepts, TeX sets without an error.

Braces and environments must match, every command must be known and have its arguments, and every row of a tabular must
fill the columns of its specification, \\multicolumn counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Command → number of arguments in braces.
COMMANDS = {
    "begin": 1, "end": 1, "centering": 0, "small": 0, "resizebox": 2, "linewidth": 0, "multicolumn": 3, "multirow": 2,
    "textbf": 1, "uparrow": 0, "downarrow": 0, "cline": 1, "hline": 0, "noalign": 1, "hrule": 0, "caption": 1,
    "label": 1, "subfloat": 1, "quad": 0, "textasciitilde": 0, "textasciicircum": 0, "textbackslash": 0, "sigma": 0,
    "theta": 0, "toprule": 0, "midrule": 0, "bottomrule": 0, "emph": 1,
}  # fmt: skip
ENVIRONMENTS = ("table", "table*", "tabular")
_TOKEN = re.compile(r"\\([a-zA-Z]+)\*?|\\(.)|([{}&$%#_^~\[\]])|([^\\{}&$%#_^~\[\]]+)", re.S)
_COLUMN = re.compile(r"@\{\}|[lcr]|[?|]")


@dataclass
class Tabular:
    """One tabular as read: its column specification and its rows of cells, each with its source."""

    spec: str
    rows: list[list[str]] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return sum(part in "lcr" for part in _COLUMN.findall(self.spec))


def tabulars(source: str) -> list[Tabular]:
    """Every tabular of a file; ValueError says what TeX would stumble over."""
    text = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
    _check_tokens(text)
    _check_environments(text)
    return [_tabular(match[1], match[2]) for match in re.finditer(_TABULAR, text)]


_TABULAR = re.compile(r"\\begin\{tabular\}\{((?:@\{\}|[^{}])*)\}(.*?)\\end\{tabular\}", re.S)


def _check_tokens(text: str) -> None:
    depth, in_math, place = 0, False, 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"cannot read {text[place : place + 20]!r}")
        place = match.end()
        command, escaped, special, _ = match.groups()
        if command is not None:
            if command not in COMMANDS:
                raise ValueError(f"unknown command \\{command}")
            if command in ("uparrow", "downarrow", "sigma", "theta") and not in_math:
                raise ValueError(f"\\{command} outside of mathematics")
            _check_arguments(text, place, command)
        elif escaped is not None:
            if escaped not in "\\&%$#_{}":
                raise ValueError(f"unknown command \\{escaped}")
        elif special == "{":
            depth += 1
        elif special == "}":
            depth -= 1
            if depth < 0:
                raise ValueError("a brace is closed that was not opened")
        elif special == "$":
            in_math = not in_math
        elif special is not None and special in "%#_^~":
            raise ValueError(f"{special} is not escaped near {text[max(0, place - 20) : place]!r}")
        elif not text[match.start() : place].isascii():
            raise ValueError(f"{text[match.start() : place]!r} is not ASCII")
    if depth or in_math:
        raise ValueError("a brace or a formula is not closed")


def _check_arguments(text: str, place: int, command: str) -> None:
    for _ in range(COMMANDS[command]):
        while place < len(text) and text[place] in " \n":
            place += 1
        if command == "subfloat" and text[place : place + 1] == "[":
            place = text.index("]", place) + 1
        if command == "multirow" and text[place : place + 1] == "*":
            place += 1
            continue
        if text[place : place + 1] != "{":
            raise ValueError(f"\\{command} lacks an argument")
        place = _closing(text, place) + 1


def _closing(text: str, start: int) -> int:
    depth = 0
    for place in range(start, len(text)):
        if text[place] in "{}" and text[place - 1] != "\\":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return place
    raise ValueError("a brace is not closed")


def _check_environments(text: str) -> None:
    open_: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{([^}]*)\}", text):
        if name not in ENVIRONMENTS:
            raise ValueError(f"unknown environment {name}")
        if kind == "begin":
            open_.append(name)
        elif not open_ or open_.pop() != name:
            raise ValueError(f"{name} is ended where it was not begun")
    if open_:
        raise ValueError(f"{open_[-1]} is not ended")


def _tabular(spec: str, body: str) -> Tabular:
    found = Tabular(spec)
    if "".join(_COLUMN.findall(spec)) != spec:
        raise ValueError(f"column specification {spec!r}")
    *lines, rest = re.split(r"\\\\", body)
    if re.sub(r"\\hline|\\noalign\{[^}]*\}|\\bottomrule|\s", "", rest):
        lines.append(rest)
    for line in lines:
        row = re.sub(r"\\(?:hline|toprule|midrule)|\\noalign\{[^}]*\}|\\cline\{[^}]*\}", "", line).strip()
        cells = [cell.strip() for cell in re.split(r"(?<!\\)&", row)]
        width = sum(int(m[1]) if (m := re.match(r"\\multicolumn\{(\d+)\}", cell)) else 1 for cell in cells)
        if width != found.columns:
            raise ValueError(f"a row fills {width} of {found.columns} columns: {row[:60]!r}")
        found.rows.append(cells)
    return found


def plain(cell: str) -> str:
    r"""The text of a cell, ``*number*`` where it is bold."""
    while True:
        shorter = re.sub(r"\\multicolumn\{\d+\}\{[^{}]*\}\{(.*)\}$", r"\1", cell)
        shorter = re.sub(r"\\multirow\{\d+\}\{\*\}\{(.*)\}$", r"\1", shorter)
        shorter = re.sub(r"\\textbf\{([^{}]*)\}", r"*\1*", shorter)
        if shorter == cell:
            break
        cell = shorter
    return re.sub(r"\s+", " ", re.sub(r"\$\\(?:up|down)arrow\$", "", cell)).strip()
