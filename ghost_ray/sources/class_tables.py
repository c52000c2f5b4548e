"""Tables of classes: which index of the head a name means."""

from __future__ import annotations

import posixpath
import re

from pyarrow import fs

from ghost_ray.config import safe_yaml
from ghost_ray.errors import InputError, one_line
from ghost_ray.files import explained, parse_json, resolve
from ghost_ray.files.causes import cause_of
from ghost_ray.sources.retry import retried


def load_classes(uri: str) -> dict[str, int]:
    """Read a table of classes.

    A JSON or YAML object name → index, a JSON or YAML list of names in the head's order, or text with a line
    ``name index`` for each class, or a name alone in the head's order.
    """
    filesystem, path = resolve(uri, "classes")
    try:
        content = retried(filesystem, lambda: _read(filesystem, path))
    except OSError as error:
        if cause_of(error):
            raise explained(error, "classes", uri) from None
        raise InputError("classes", uri, f"cannot be read: {one_line(error)}") from error
    try:
        text = content.decode("utf-8-sig")
        suffix = posixpath.splitext(path)[1].lower()
        if suffix == ".json":
            table = parse_json(content)
        elif suffix in (".yaml", ".yml"):
            table = safe_yaml.load(text)
        else:
            table = _from_lines(text)
    except ValueError as error:
        raise InputError("classes", uri, f"cannot be read: {one_line(error)}") from error
    if isinstance(table, list):
        if len({str(name) for name in table}) != len(table):
            raise InputError("classes", uri, "names a class twice")
        table = {str(name): index for index, name in enumerate(table)}
    wrong = "expected a table name → index" if not isinstance(table, dict) or not table else ""
    for name, index in table.items() if isinstance(table, dict) else ():
        if not isinstance(index, int) or isinstance(index, bool):
            wrong = f"{name!r} has {index!r}, expected an integer"
            break
    if wrong:
        raise InputError("classes", uri, wrong, "lines `name index`, or JSON or YAML {name: index}")
    return {str(name): index for name, index in table.items()}


def _read(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_file(path) as handle:
        return bytes(handle.read())


def _from_lines(text: str) -> dict[str, int] | list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [re.split(r"[\t, ]+(?=-?\d+$)", line) for line in lines]
    if not all(len(pair) == 2 for pair in pairs):
        return lines
    table = {name: int(index) for name, index in pairs}
    if len(table) != len(pairs):
        raise ValueError("names a class twice")
    return table
