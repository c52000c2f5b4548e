"""What an interrupted run left behind, and whether this run may go on with it."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError
from ghost_ray.extract.plan import Plan
from ghost_ray.files import MANIFEST, OutputFolder, join, kind_of, names_in, read_json, remove_tree, resolve, write_json
from ghost_ray.manifest import redact_values
from ghost_ray.store import StoreManifest

BLOCKS = "blocks"
CHECKPOINT = "checkpoint"
SETTINGS = "settings.json"
# Where and how fast a job runs may differ between a run and the one that goes on with it.
_FREE = {"address", "num_cpus", "overwrite", "out", "actors", "gpus_per_actor", "max_failures"}
_READERS = 16


def claim(output: OutputFolder, config: ExtractConfig, plan: Plan) -> bool:
    """Take the staging folder for this run; True where a run with the same settings got as far as publishing.

    Raises
    ------
    InputError
        Naming what differs from the run that was started there, unless ``--overwrite`` starts anew.
    """
    mine = _settings(config.model_dump(mode="json"), plan.network.weights_sha256, plan.data.fingerprint)
    theirs, finished = _started(output.staging)
    if theirs is not None:
        differing = [name for name in mine if theirs.get(name) != mine[name]]
        if not differing:
            return finished
        if not config.overwrite:
            shown = "; ".join(_difference(name, theirs.get(name), mine[name]) for name in differing[:4])
            raise InputError(
                "--out",
                output.uri,
                f"an unfinished run with other settings lies there: {shown}",
                "use the same settings to go on with it, or --overwrite to start anew",
            )
    filesystem, path = resolve(output.staging)
    filesystem.delete_dir_contents(path, missing_dir_ok=True)
    write_json(join(output.staging, SETTINGS), mine)
    return False


def _started(staging: str) -> tuple[dict[str, Any] | None, bool]:
    """Settings of the run that left this folder, and whether it left it complete."""
    try:
        if kind_of(join(staging, SETTINGS)) == "file":
            return dict(read_json(join(staging, SETTINGS))), False
        if kind_of(join(staging, MANIFEST)) == "file":
            manifest = StoreManifest.model_validate(read_json(join(staging, MANIFEST)))
            return _settings(manifest.config, manifest.network.weights_sha256, manifest.data[0].fingerprint), True
    except (ValueError, TypeError, IndexError):
        return {}, False
    return None, False


def _settings(config: dict[str, Any], weights: str | None, fingerprint: str | None) -> dict[str, Any]:
    given = {name: value for name, value in redact_values(config).items() if name not in _FREE}
    return {**given, "weights": weights, "data fingerprint": fingerprint}


def _difference(name: str, before: object, now: object) -> str:
    word = name if " " in name else f"--{name.replace('_', '-')}"
    short = [str(value)[:60] for value in (before, now)]
    return f"{word} was {short[0]}, is {short[1]}"


def remove_work(staging: str) -> None:
    """Remove what only a run needs; the settings go last, since they say what the rest belongs to."""
    remove_tree(join(staging, BLOCKS))
    remove_tree(join(staging, CHECKPOINT))
    filesystem, path = resolve(join(staging, SETTINGS))
    filesystem.delete_file(path)


def block_files(staging: str) -> list[str]:
    """URIs of the blocks written so far, sorted."""
    folder = join(staging, BLOCKS)
    return [join(folder, name) for name in names_in(folder) if name.endswith(".parquet")]


def read_blocks(files: list[str], columns: list[str]) -> list[pa.Table]:
    """Some columns of each block. A file cut short by a kill is removed: its images are computed again."""
    with ThreadPoolExecutor(_READERS) as pool:
        tables = list(pool.map(lambda uri: _read(uri, columns), files))
    return [table for table in tables if table is not None]


def _read(uri: str, columns: list[str]) -> pa.Table | None:
    filesystem, path = resolve(uri)
    try:
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            return file.read(columns, use_threads=False)
    except pa.ArrowInvalid:
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(path)
        return None


def remaining(items: pa.Table, staging: str, *, again: bool) -> pa.Table:
    """The items that are in no block yet.

    The blocks themselves are asked, not the list of checkpointed keys beside them: a key without its row would be
    an image lost. With ``again``, images that could not be read get another chance; reading fails for passing
    reasons too.
    """
    blocks = read_blocks(block_files(staging), ["key", "stage"])
    if not blocks:
        return items
    done = pa.concat_tables(blocks)
    if again:
        done = done.filter(pc.fill_null(pc.not_equal(done["stage"], "read"), True))
    return items.filter(pc.invert(pc.is_in(items["key"], done["key"].combine_chunks())))
