"""What is fuzzed: a valid input of each kind, how it goes wrong, and everything the program reads from it."""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from support.fuzz_arrays import array_files
from support.fuzz_images import images, tars, weights
from support.fuzz_texts import configurations, image_lists
from support.fuzzing import NUMBERS, TEXTS, Reading, Variants, hostile_value, json_variant, mutated_bytes, mutated_value
from support.stores import Toy, forget_digests, read_row_file, write_store, write_toy_model

CLASSES, DIMENSIONS = 5, 8


def manifests(folder: Path) -> Variants:
    """Manifests of stores, models and versions, and a registry's pointer, by the commands that show them."""
    from ghost_ray import registry
    from ghost_ray.cli import print_result
    from ghost_ray.config.refit_settings import RegistryConfig, ShowConfig, StatusConfig, VerifyConfig
    from ghost_ray.errors import DamageFound
    from ghost_ray.files.manifest import write_manifest
    from ghost_ray.model import Model
    from ghost_ray.registry import looking
    from ghost_ray.registry.status import status
    from ghost_ray.registry.verifying import verify
    from ghost_ray.store import Store
    from support.registries import make_version

    rng = np.random.default_rng(0)
    toy = Toy.make(rng)
    rows = toy.known(rng, 60)
    write_store(folder / "store", *rows, toy)
    write_toy_model(folder / "model", *rows, toy)
    for result in ("store", "model"):  # with digests, every change would be refused before it is looked at
        forget_digests(folder / result)
    root = str(folder / "registry")
    for word in ("first", "second"):
        version = make_version(root, word)
        registry.move(root, lambda pointer, version=version: registry.promoted(pointer, version, "refit"))
    registry.Attempt(root).end("promoted", version=version)
    (attempt,) = (folder / "registry" / "attempts").iterdir()
    (folder / "copy").mkdir()

    def again(read: Any) -> None:
        # What was accepted must also be writable: a refit carries parts of manifests along.
        write_manifest(str(folder / "copy"), read.manifest)

    def show() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            show_all()
        registry.load(root)

    def show_all() -> None:
        print_result("registry list", looking.list_versions(RegistryConfig(root=root)), True)
        print_result("registry show", looking.show_version(ShowConfig(root=root)), False)
        print_result("status", status(StatusConfig(root=root)), False)

    def look_through(result: str) -> None:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(DamageFound):
            verify(VerifyConfig(place=str(folder / result)))

    write_store(folder / "listed", *rows, toy)  # with its digests
    readings: dict[str, Reading] = {
        "listed/manifest.json": lambda: look_through("listed"),
        "store/manifest.json": lambda: again(Store.open(str(folder / "store"))),
        "model/manifest.json": lambda: again(Model.open(str(folder / "model"))),
        f"registry/versions/{version}/manifest.json": show,
        f"registry/versions/{version}/drift.json": show,
        f"registry/versions/{version}/model/thresholds.json": show,
        f"registry/attempts/{attempt.name}": show,
        "registry/current.json": show,
    }
    originals = {name: (folder / name).read_bytes() for name in readings}

    def make(rng: random.Random) -> Reading:
        for name, content in originals.items():
            (folder / name).write_bytes(content)
        name = rng.choice(list(originals))
        content = json.loads(originals[name])
        content.pop("seal", None)  # with it, every change would be refused before it is looked at
        (folder / name).write_bytes(json_variant(content, rng))
        return readings[name]

    return make


def stores(folder: Path) -> Variants:
    """Whole stores: bytes of row files, columns of other types, row counts and label ranges that do not agree."""
    from ghost_ray.jobs.fit import _accumulate, _shards
    from ghost_ray.store import INDEX, Store, row_files

    opened = row_files._opened

    @contextlib.contextmanager
    def as_remote(uri: str) -> Iterator[row_files._Remote]:
        with pa.OSFile(uri) as file:
            yield row_files._Remote(file)

    rng = np.random.default_rng(0)
    toy = Toy.make(rng, CLASSES, DIMENSIONS)
    place = folder / "store"
    write_store(place, *toy.known(rng, 60), toy, group_rows=12)
    forget_digests(place)
    manifest = json.loads((place / "manifest.json").read_bytes())
    files = {file.name: file.read_bytes() for file in (place / "rows").iterdir()}
    index = (place / INDEX).read_bytes()
    first = sorted(files)[0]
    table = read_row_file(place / "rows" / first)
    odd = [_row_file(variant) for variant in _odd_tables(table)]
    odd += [_row_file(table, compression) for compression in ("lz4", "zstd")]

    def make(rng: random.Random) -> Reading:
        described = mutated_value(manifest, rng) if rng.random() < 0.3 else dict(manifest)
        if isinstance(described, dict) and rng.random() < 0.4:
            described["files"] = None  # then the files themselves are asked
        (place / "manifest.json").write_text(json.dumps(described))
        for name, data in files.items():
            (place / "rows" / name).write_bytes(data)
        (place / INDEX).write_bytes(_rotten_tensors(index, rng) if rng.random() < 0.2 else index)
        data = rng.choice(odd) if rng.random() < 0.4 else files[first]
        if rng.random() < 0.8:
            data = _rotten_rows(data, rng)
        (place / "rows" / first).write_bytes(data)
        # A file of an object store is read in another way.
        row_files._opened = as_remote if rng.random() < 0.3 else opened
        return read

    def read() -> None:
        store = Store.open(str(place))
        store.fingerprint()
        for groups in store.row_groups():
            store.read_keyed(groups)
            store.read_small(groups, "group")
        if store.clustered:
            store.class_ranges()
        for shard in _shards(store):
            _accumulate(shard, store)

    return make


def _rotten_rows(data: bytes, rng: random.Random) -> bytes:
    """Half of the damage goes to the metadata, which says where everything is: the footer, a batch's description."""
    if rng.random() < 0.5:
        return mutated_bytes(data, rng)
    length = struct.unpack("<I", data[-10:-6])[0]
    if rng.random() < 0.5:
        place = data.find(b"\xff\xff\xff\xff", rng.randrange(len(data)))
        if place < 0:
            return mutated_bytes(data, rng)
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = place + rng.randrange(600) // 4 * 4
            value = rng.choice((0, 1, 3, 8, -1, 2**31 - 1, -(2**31), rng.randrange(2**16), rng.randrange(2**31)))
            changed[at : at + 4] = struct.pack("<i", value)
        return bytes(changed[: len(data)])
    body, footer = data[: -10 - length], data[-10 - length : -10]
    footer = mutated_bytes(footer, rng, 4)
    said = len(footer) if rng.random() < 0.9 else rng.choice((0, 1, 2**31 - 1, 2**32 - 1))
    return body + footer + struct.pack("<I", said) + data[-6:]


def _row_file(table: pa.Table, compression: str | None = None) -> bytes:
    """A table as an Arrow IPC file in batches of twelve rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, 12)
    return sink.getvalue().to_pybytes()


def _odd_tables(table: pa.Table) -> list[pa.Table]:
    """Tables that are almost rows of a store."""
    rows = table.num_rows
    flat = table["embedding"].combine_chunks().flatten()

    def with_column(name: str, values: Any) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, values)

    def vectors(kind: pa.DataType, size: int) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.nulls(rows * size, kind).fill_null(1), size)

    holes = pa.array([None if row % 7 == 0 else row % CLASSES for row in range(rows)], pa.int32())
    huge = pa.array([2**40 * (row % 2) for row in range(rows)])
    columns = {
        "label": [pa.array(["a"] * rows), pa.array([0.5] * rows), holes, huge, pa.nulls(rows), pa.array([[1]] * rows)],
        "pred": [pa.array([-1] * rows), holes, huge.cast(pa.uint64()), pa.array([True] * rows)],
        "key": [pa.nulls(rows, pa.string()), pa.array(range(rows)), pa.array(["../../x\n\0"] * rows)],
        "group": [pa.array(range(rows)), pa.nulls(rows), pa.array(["a"] * rows).dictionary_encode()],
        "embedding": [
            vectors(pa.float64(), DIMENSIONS),
            vectors(pa.float32(), DIMENSIONS + 1),
            vectors(pa.int32(), DIMENSIONS),
            pa.FixedSizeListArray.from_arrays(pa.nulls(rows * DIMENSIONS, pa.float32()), DIMENSIONS),
            pa.FixedSizeListArray.from_arrays(pa.array(np.full(len(flat), np.nan, np.float32)), DIMENSIONS),
            pa.array([[1.0] * (row % 3) for row in range(rows)], pa.list_(pa.float32())),
            pa.array(["x"] * rows),
        ],
    }
    odd = [with_column(name, values) for name, variants in columns.items() for values in variants]
    odd += [table.drop_columns([name]) for name in table.column_names]
    twice = table.append_column("label", table["label"])
    return [*odd, twice, table.slice(0, 0), pa.concat_tables([table] * 3), table.select(table.column_names[::-1])]


def tensor_headers(folder: Path) -> Variants:
    """Safetensors as a model's Gaussians, a store's head and a network's weights."""
    from safetensors.torch import save

    from ghost_ray.backbone import load_backbone
    from ghost_ray.model import Model
    from ghost_ray.store import Store
    from support.networks import Small

    rng = np.random.default_rng(0)
    toy = Toy.make(rng, CLASSES, DIMENSIONS)
    rows = toy.known(rng, 60)
    write_store(folder / "store", *rows, toy)
    write_toy_model(folder / "model", *rows, toy)
    for result in ("store", "model"):  # with digests, every change would be refused before it is looked at
        forget_digests(folder / result)
    (folder / "weights.safetensors").write_bytes(save(Small().state_dict()))
    readings: dict[str, Reading] = {
        "store/head.safetensors": lambda: Store.open(str(folder / "store")).head(),
        "model/gaussians.safetensors": lambda: Model.open(str(folder / "model")),
        "weights.safetensors": lambda: load_backbone(
            "support.networks:small", str(folder / "weights.safetensors"), device="cpu"
        ),
    }
    originals = {name: (folder / name).read_bytes() for name in readings}
    for read in readings.values():
        read()  # imports do not count as the cost of an input

    def make(rng: random.Random) -> Reading:
        name = rng.choice(list(originals))
        (folder / name).write_bytes(_rotten_tensors(originals[name], rng))
        return readings[name]

    return make


def _rotten_tensors(data: bytes, rng: random.Random) -> bytes:
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    if rng.random() < 0.2:
        return mutated_bytes(data, rng)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([name for name in header if name != "__metadata__"])
        tensor = dict(header[name])
        if not isinstance(tensor.get("shape"), list):
            break
        match rng.randrange(7):
            case 0:
                sizes = [*tensor["shape"], rng.choice(NUMBERS)]
                tensor["shape"] = rng.choice((sizes, sizes[1:], sizes[-1:], [], [2**32, 2**32], [0, 2**63]))
            case 1:
                tensor["data_offsets"] = [rng.choice((0, -1, 8, len(body), 2**64 - 1, 2**63)) for _ in range(2)]
            case 2:
                kinds = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F4", "I64", "U8", "BOOL", "C64", "X", "")
                tensor["dtype"] = rng.choice(kinds)
            case 3:
                header[rng.choice((*TEXTS, "__metadata__"))] = dict(tensor)
            case 4:
                tensor = mutated_value(tensor, rng)
            case 5:
                body = rng.choice((body + b"\0" * 8, body[:-4], mutated_bytes(body, rng), b"\xff" * len(body)))
            case _:
                header["__metadata__"] = hostile_value(rng)
        header[name] = tensor
        if not isinstance(tensor, dict):
            break
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        text = mutated_bytes(text, rng)
    said = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(text) + len(body)))
    return struct.pack("<Q", said) + text + body


TARGETS: dict[str, Callable[[Path], Variants]] = {
    "manifest": manifests,
    "store": stores,
    "safetensors": tensor_headers,
    "array-file": array_files,
    "image": images,
    "tar": tars,
    "weights": weights,
    "image-list": image_lists,
    "config": configurations,
}
