"""Finds results in the given folders, complete or not, and reads their files without raising."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import MANIFEST, join, open_input, reaching, read_json, resolve
from ghost_ray.registry import VERSIONS, current
from ghost_ray.registry.pointer import CURRENT

T = TypeVar("T")
# registry/versions/<id>/evaluation is the deepest place of a result below a folder that a user would name.
_DEPTH = 4
_MAX_FOLDERS = 500
_STAGING = ".partial"
DRIFT = "drift.json"
# The first of these files in a folder shows the kind of an unfinished result.
_SIGNS = {
    "metrics.json": "evaluation",
    "curves.parquet": "evaluation",
    "normality.parquet": "audit",
    "summary.json": "audit",
    "gaussians.safetensors": "model",
    DRIFT: "version",
    "head.safetensors": "store",
    "rows": "store",
}
EXPECTED = {
    "audit": ("summary.json", "normality.parquet", "examples.parquet"),
    "evaluation": ("metrics.json", "significance.json", "curves.parquet", "per_class.parquet", "zscores.parquet"),
    "model": ("gaussians.safetensors",),
    "store": ("rows",),
    "version": (DRIFT,),
}


class AnyManifest(TypedDict, total=False):
    """What the page reads of a manifest, of whatever kind."""

    format: str
    kind: str
    created: str
    rows: int
    network: dict[str, object]
    class_names: list[str] | None
    notes: list[str]
    version: str
    gates: list[dict[str, object]]


@dataclass
class Result:
    """One result folder: what it is, its manifest where it has one, and what was wrong with its files."""

    uri: str
    name: str
    kind: str
    files: frozenset[str]
    manifest: AnyManifest | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """Files a result of this kind has and this one lacks."""
        return [name for name in EXPECTED.get(self.kind, ()) if name not in self.files]

    @property
    def network(self) -> str:
        network = self.manifest.get("network") if self.manifest else None
        return str(network.get("name", "")) if isinstance(network, dict) else ""

    @property
    def class_names(self) -> list[str] | None:
        names = self.manifest.get("class_names") if self.manifest else None
        return [str(name) for name in names] if isinstance(names, list) and names else None

    @property
    def notes(self) -> list[str]:
        """The notes of the job that made it, one sentence each."""
        notes = self.manifest.get("notes") if self.manifest else None
        return [str(note) for note in notes] if isinstance(notes, list) else []

    def json(self, name: str, kind: type[T]) -> T:
        """The object in a JSON file; empty, with an entry in ``problems``, if there is none.

        ``kind`` says what the fields mean. Any of them may be missing or hold something else: the file may be damaged
        or of another version.
        """
        nothing = cast(T, {})
        if name not in self.files:
            return nothing
        try:
            content = read_json(join(self.uri, name))
        except (ValueError, OSError) as error:
            self.problems.append(f"{name} {one_line(error)}")
            return nothing
        if not isinstance(content, dict):
            self.problems.append(f"{name} is not a JSON object")
            return nothing
        return cast(T, content)

    def table(self, name: str, columns: Sequence[str]) -> dict[str, np.ndarray] | None:
        """Columns of a Parquet file as arrays; None, with an entry in ``problems``, if it lacks them.

        ``name`` may be in a folder of the result, as scores are.
        """
        if name.partition("/")[0] not in self.files:
            return None
        try:
            with open_input(join(self.uri, name)) as handle:
                table = pq.read_table(handle, columns=list(columns))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            self.problems.append(f"{name} cannot be read: {one_line(error, 120)}")
            return None
        lacking = [column for column in columns if column not in table.column_names]
        if lacking:
            self.problems.append(f"{name} has no column {', '.join(lacking)}")
            return None
        return {column: table[column].combine_chunks().to_numpy(zero_copy_only=False) for column in columns}


def find_results(folders: Sequence[str]) -> list[Result]:
    """Every result in or below ``folders``, in the order named, parts after what they belong to.

    Raises
    ------
    InputError
        If a folder does not exist, or none of them holds a result.
    """
    found: dict[str, Result] = {}
    for folder in folders:
        filesystem, path = resolve(folder, "folders")
        with reaching(folder, "folders"):
            there = filesystem.get_file_info(path).type
        if there != fs.FileType.Directory:
            raise InputError(
                "folders", redact(folder), "is not a folder", "name the `out` of an audit or an evaluation"
            )
        top = _shown(os.path.basename(path) or path)
        _walk(folder.rstrip("/") or folder, top, _DEPTH, found)
    if not found:
        raise InputError(
            "folders",
            redact(", ".join(folders)),
            "holds no result of ghost-ray, not even an unfinished one",
            "make one with `ghost-ray audit STORE --out DIR` or `ghost-ray evaluate … --out DIR`",
        )
    return list(found.values())


def part_of(folder: str, name: str) -> str:
    """A folder in a result that a file of the result names; ValueError for a name that leads elsewhere."""
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"{one_line(name, 60)!r} is not the name of a folder in it")
    return join(folder, name)


def _shown(name: str) -> str:
    """A folder's name; of a staging folder the name it will have."""
    return name.removeprefix(".").removesuffix(_STAGING) if name.startswith(".") else name


def _walk(uri: str, name: str, depth: int, found: dict[str, Result]) -> None:
    filesystem, path = resolve(uri)
    listing = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    result = _recognise(uri, name, frozenset(info.base_name for info in listing))
    if result is not None:
        found.setdefault(path, result)
        # Only a version and a demo contain other results; do not look inside the rest.
        if result.kind not in ("version", "demo"):
            return
    if depth == 0 or len(found) >= _MAX_FOLDERS:
        return
    for below in _below(uri, listing):
        _walk(join(uri, below), f"{name}/{_shown(below)}", depth - 1, found)


def _below(uri: str, listing: list[fs.FileInfo]) -> list[str]:
    """Folders to look into: of a registry the version that serves, else all."""
    if any(info.base_name == CURRENT for info in listing):
        try:
            pointer = current(uri)
        except InputError:
            pointer = None
        if pointer is not None:
            return [f"{VERSIONS}/{pointer.version}"]
    folders = sorted(info.base_name for info in listing if info.type == fs.FileType.Directory)
    return [name for name in folders if name != "plots"]


def _recognise(uri: str, name: str, names: frozenset[str]) -> Result | None:
    sign = next((kind for file, kind in _SIGNS.items() if file in names), None)
    staging = os.path.basename(uri).startswith(".") and uri.endswith(_STAGING)
    if MANIFEST not in names:
        if sign is None and not staging:
            return None
        return Result(uri, name, sign or "result", names)
    result = Result(uri, name, sign or "result", names)
    manifest = result.json(MANIFEST, AnyManifest)
    if not manifest and result.problems:
        return result
    if manifest.get("format") != "ghost_ray":
        return None
    result.kind = str(manifest.get("kind", result.kind))
    result.manifest = manifest
    return result
