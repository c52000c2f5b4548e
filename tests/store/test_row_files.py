"""Row files: mapped on a disk, a few requests elsewhere, and refused where they are not what they seem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.object_stores import ObjectStore, object_store_in_environment
from support.stores import Toy, all_labels, forget_digests, read_row_file, write_store

from ghost_ray.errors import InputError
from ghost_ray.store import Store, open_rows, to_table, write_rows


def table(rng: np.random.Generator, rows: int = 40, dimensions: int = 4) -> pa.Table:
    label = rng.integers(0, 3, rows)
    keys = pa.array([f"key-{row}" for row in range(rows)])
    return to_table(keys, label, label, rng.normal(size=(rows, dimensions)).astype(np.float32))


def test_what_is_written_is_opened_as_it_was_and_some_columns_of_it(tmp_path: Path, rng: np.random.Generator) -> None:
    rows, where = table(rng), str(tmp_path / "a.arrow")
    with pa.OSFile(where, "wb") as file:
        write_rows(file, rows, rows.schema)
    with open_rows(where) as reader:
        assert reader.num_record_batches == 1
        found = reader.read_all()
    assert found.equals(rows), "also after the file was closed"
    with open_rows(where, ["label", "no such column"]) as reader:
        assert reader.read_all().equals(rows.select(["label"]))
    with pa.OSFile(where, "wb") as file:
        write_rows(file, rows.slice(0, 0), rows.schema)
    with open_rows(where) as reader:
        assert reader.num_record_batches == 0


def test_the_arrays_of_a_store_on_a_disk_are_its_file(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, dimensions=200)
    store = write_store(tmp_path / "s", *toy.known(rng, 4000), toy, group_rows=1000)
    before = pa.total_allocated_bytes()
    parts = [rows for groups in store.row_groups() for rows in store.batches(groups)]
    assert pa.total_allocated_bytes() - before < sum(rows.embedding.nbytes for rows in parts) / 50
    assert not any(array.flags.writeable for rows in parts for array in (rows.label, rows.pred, rows.embedding))
    assert np.array_equal(np.concatenate([rows.label for rows in parts]), all_labels(store)[0])


class TestOnAnObjectStore:
    @pytest.fixture
    def remote(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        with object_store_in_environment(monkeypatch) as store:
            yield store

    def test_few_requests_read_labels_and_row_groups(
        self, tmp_path: Path, remote: ObjectStore, rng: np.random.Generator
    ) -> None:
        toy = Toy.make(rng, classes=4, dimensions=600)
        embedding, label = toy.known(rng, 1000)
        place = {"embedding": embedding, "label": label, "toy": toy, "group_rows": 250}
        local = write_store(tmp_path / "s", **place)
        store = write_store(f"s3://{remote.bucket}/s", **place)
        whole = store.row_groups(1 << 62)[0]
        count = len(whole.members)
        assert count > 2

        def requests(read: Callable[[], object]) -> int:
            remote.seen.clear()
            read()
            return len(remote.seen)

        # Its size, its footer, and one for each row group.
        assert requests(lambda: store.read_small(whole, "label", "pred")) <= 2 + count
        assert requests(lambda: store.read(whole)) <= 2 + count
        assert requests(lambda: store.read_keyed(whole.split()[1])) <= 3
        found, expected = store.read_keyed(whole), local.read_keyed(local.row_groups(1 << 62)[0])
        assert found[1].equals(expected[1])
        assert np.array_equal(found[0].embedding, expected[0].embedding)

    def test_logits_that_are_not_needed_are_not_read(
        self, remote: ObjectStore, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        toy = Toy.make(rng, classes=3000, dimensions=100)
        store = write_store(f"s3://{remote.bucket}/s", *toy.known(rng, 200), toy, stored_logits=True)
        read: list[int] = []
        app = remote._app

        def counted(environ: dict, start: object) -> list[bytes]:
            body = [bytes(part) for part in app(environ, start)]
            read.append(sum(map(len, body)))
            return body

        monkeypatch.setattr(remote, "_app", counted)
        groups = store.row_groups()[0]
        rows = list(store.batches(groups, logits=False))
        assert not any(part.has_logits for part in rows)
        assert sum(read) < 4 * 200 * 100 + 3 * (64 << 10)
        read.clear()
        assert store.read(groups).has_logits
        assert sum(read) > 4 * 200 * 3000


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _without_batches(data: bytes) -> bytes:
    rows = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    sink = pa.BufferOutputStream()
    write_rows(sink, rows.slice(0, 0), rows.schema)
    return sink.getvalue().to_pybytes()


def _compressed(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    with pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def _keys_beyond_the_file(data: bytes) -> bytes:
    """The last offset of the first batch's keys points far away."""
    rows = pa.ipc.open_file(pa.BufferReader(data)).get_batch(0)
    offsets = rows.column("key").buffers()[1].to_pybytes()[: 4 * (rows.num_rows + 1)]
    at = data.index(offsets) + len(offsets) - 4
    return data[:at] + (2**31 - 1).to_bytes(4, "little") + data[at + 4 :]


def _not_utf8(data: bytes) -> bytes:
    key = pa.ipc.open_file(pa.BufferReader(data)).get_batch(0)["key"][0].as_py().encode()
    at = data.index(key)
    return data[:at] + b"\xff" + data[at + 1 :]


HOSTILE = {
    "cut short": (_cut, "rt-0000.arrow: "),
    "empty": (lambda data: b"", "rt-0000.arrow: "),
    "no batches": (_without_batches, "holds 0 record batches, expected more than 0"),
    "compressed": (_compressed, "its record batches are compressed, expected uncompressed ones"),
    "keys beyond the file": (_keys_beyond_the_file, "rt-0000.arrow: "),
    "keys that are no text": (_not_utf8, "rt-0000.arrow: "),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 90), toy)
    forget_digests(store.uri)
    path = tmp_path / "s" / "rows" / store.files[0].name
    change, problem = HOSTILE[name]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=problem) as refused:
        store.read_keyed(store.row_groups()[0])
    assert "\n" not in str(refused.value)
    assert "extract the store again" in str(refused.value)


def test_a_store_without_groups_of_its_unknowns_has_none(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", toy.unknown(rng, 30), None, toy, layout="unordered")
    forget_digests(store.uri)
    path = tmp_path / "s" / "rows" / store.files[0].name
    rows = read_row_file(path).drop_columns(["group"])
    with pa.OSFile(str(path), "wb") as file:
        write_rows(file, rows, rows.schema)
    store = Store.open(store.uri)
    assert store.read_small(store.row_groups()[0], "group")["group"].null_count == 30
