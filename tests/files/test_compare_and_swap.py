"""Compare and swap: of several who want to replace a file, one does, and the others are told."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.object_stores import object_store_in_environment
from support.registries import make_version

from ghost_ray import registry
from ghost_ray.errors import InputError
from ghost_ray.files import join, names_in
from ghost_ray.files.compare_and_swap import Changed, read_snapshot, swap, time_at, written_at

ROUNDS = 200


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
        return
    with object_store_in_environment(monkeypatch) as store:
        yield f"s3://{store.bucket}/registry"


def test_only_what_was_seen_is_replaced(root: str) -> None:
    file = join(root, "file.json")
    assert read_snapshot(file) is None
    first = swap(file, b"1", None)
    with pytest.raises(Changed):
        swap(file, b"2", None)
    second = swap(file, b"2", first)
    assert read_snapshot(file) == second
    with pytest.raises(Changed):  # as one who paused between looking and writing
        swap(file, b"3", first)
    found = read_snapshot(file)
    assert found is not None
    assert found.data == b"2"


def test_credentials_of_a_uri_and_of_a_file_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store_in_environment(monkeypatch) as store:
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        in_uri = store.uri(f"{store.bucket}/file")
        swap(in_uri, b"1", None)
        (tmp_path / "credentials").write_text("[night]\naws_access_key_id = a\naws_secret_access_key = b\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_PROFILE", "night")
        found = read_snapshot(f"s3://{store.bucket}/file?endpoint_override={store.endpoint}&scheme=http")
        assert found is not None
        assert found.data == b"1"
        assert written_at(in_uri) <= time_at(in_uri)


def test_a_store_without_conditional_writes_is_refused() -> None:
    with pytest.raises(InputError, match="does not support conditional writes"):
        read_snapshot("mock:///registry/file")


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with object_store_in_environment(monkeypatch) as store:
        store.ignores_conditions = True
        root = f"s3://{store.bucket}/registry"
        version = make_version(root, "a")
        before = sorted(names_in(root))
        with pytest.raises(InputError, match=r"ignores the conditions of writes .* use a local folder, or a store"):
            registry.move(root, lambda pointer: registry.promoted(pointer, version, "promote"))
        assert sorted(names_in(root)) == before


def _promote(root: str, version: str, barrier: Any, answers: Any) -> None:
    """Promote, with everybody at the barrier between looking and writing, ``ROUNDS`` times."""

    def decide(pointer: registry.Pointer | None) -> registry.Pointer:
        barrier.wait(60)
        return registry.promoted(pointer, version, "promote")

    for _ in range(ROUNDS):
        try:
            answers.put((version, registry.move(root, decide).version))
        except registry.Busy:
            answers.put((version, None))
        barrier.wait(60)


@pytest.mark.slow
def test_of_two_processes_that_promote_at_the_same_moment_one_wins_and_the_other_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with object_store_in_environment(monkeypatch) as store:
        root = f"s3://{store.bucket}/registry"
        start, *rivals = (make_version(root, word) for word in ("start", "a", "b"))
        registry.move(root, lambda pointer: registry.promoted(pointer, start, "promote"))
        context = multiprocessing.get_context("spawn")
        barrier, answers = context.Barrier(3), context.SimpleQueue()
        workers = [context.Process(target=_promote, args=(root, one, barrier, answers)) for one in rivals]
        for worker in workers:
            worker.start()
        moves = 1
        for _ in range(ROUNDS):
            barrier.wait(60)
            ended = dict(answers.get() for _ in rivals)
            pointer = registry.current(root)
            assert pointer is not None
            winners = [version for version, reached in ended.items() if reached is not None]
            assert winners == [pointer.version]
            moves += 1
            assert len(pointer.history) == min(moves, 100)
            # Both must have something to win again.
            registry.move(root, lambda pointer: registry.promoted(pointer, start, "promote"))
            moves += 1
            barrier.wait(60)
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0


def test_a_promotion_that_pauses_between_looking_and_writing_overwrites_nothing(root: str) -> None:
    first, second, third = (make_version(root, word) for word in "abc")
    registry.move(root, lambda pointer: registry.promoted(pointer, first, "promote"))
    looked, go_on = threading.Event(), threading.Event()
    told: list[BaseException] = []

    def pause(pointer: registry.Pointer | None) -> registry.Pointer:
        looked.set()
        assert go_on.wait(60)
        return registry.promoted(pointer, second, "promote")

    def promote_slowly() -> None:
        try:
            registry.move(root, pause)
        except registry.Busy as error:
            told.append(error)

    slow = threading.Thread(target=promote_slowly)
    slow.start()
    assert looked.wait(60)
    registry.move(root, lambda pointer: registry.promoted(pointer, third, "promote"))
    go_on.set()
    slow.join(60)
    assert f"{third} is current now" in str(told[0])
    pointer = registry.current(root)
    assert pointer is not None
    assert [move.version for move in pointer.history] == [first, third]
