"""Versions, the pointer, locks and loading, on a local folder and on an S3 of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries import fingerprint, make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.cli import main
from ghost_ray.config.refit_settings import (
    LabelConfig,
    PromoteConfig,
    PruneConfig,
    RegistryConfig,
    RollbackConfig,
    ShowConfig,
    StatusConfig,
)
from ghost_ray.errors import InputError
from ghost_ray.files import join, kind_of, read_json, write_json
from ghost_ray.model import Model
from ghost_ray.registry import looking, operations
from ghost_ray.registry.pointer import Found
from ghost_ray.registry.status import status


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket on a small S3 server of this process."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="models")
        yield "s3://models"
    server.stop()


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "registry")
    return join(request.getfixturevalue("bucket"), request.node.name.translate(str.maketrans("[]", "--")))


def promote(root: str, version: str) -> None:
    operations.promote(PromoteConfig(root=root, version=version))


def test_a_new_registry_is_empty_and_its_first_version_becomes_current(root: str) -> None:
    assert registry.current(root) is None
    assert registry.version_ids(root) == []
    version = make_version(root, "a")
    assert version == f"0001-{fingerprint('a')[:12]}"
    assert registry.current(root) is None
    promote(root, version)
    pointer = registry.current(root)
    assert pointer is not None
    assert (pointer.version, pointer.previous) == (version, None)
    assert read_json(join(root, "current.json"))["version"] == version


def test_versions_can_be_named_by_number_and_beginning(root: str) -> None:
    versions = [make_version(root, word) for word in "abc"]
    assert [registry.resolve_id(root, name) for name in ("1", "0002", versions[2][:8])] == versions
    with pytest.raises(InputError, match="fits 3 versions"):
        registry.resolve_id(root, "000")
    for name in ("../../etc", "²", "٣", "9" * 5000, ""):
        with pytest.raises(InputError, match="is not a version"):
            registry.resolve_id(root, name)


def test_rollback_goes_back_step_by_step_and_holds_what_was_left(root: str) -> None:
    a, b, c = (make_version(root, word) for word in "abc")
    for version in (a, b, c):
        promote(root, version)
    assert operations.rollback(RollbackConfig(root=root))["current"] == b
    assert operations.rollback(RollbackConfig(root=root)) | {"root": ""} == {
        "root": "",
        "current": a,
        "previous": None,
        "held": b,
        "left": b,
        "skipped": [],
    }
    pointer = registry.current(root)
    assert pointer is not None
    assert [bool(pointer.held_versions(fingerprint(word))) for word in "abc"] == [False, True, True]
    with pytest.raises(InputError, match="no previous version"):
        operations.rollback(RollbackConfig(root=root))
    promote(root, c)
    pointer = registry.current(root)
    assert pointer is not None
    assert not pointer.held_versions(fingerprint("c"))
    assert [step.by for step in pointer.history] == ["promote"] * 3 + ["rollback"] * 2 + ["promote"]


def test_prune_keeps_current_previous_labelled_and_the_newest_others(tmp_path: Path) -> None:
    root = str(tmp_path)
    versions = [make_version(root, word) for word in "abcdef"]
    assert operations.prune(PruneConfig(root=root, keep=1))["removed"] == [], "while nothing is current"
    promote(root, versions[0])
    promote(root, versions[2])
    operations.label(LabelConfig(root=root, version="2", label="canary"))
    planned = operations.prune(PruneConfig(root=root, keep=1, dry_run=True))
    assert registry.version_ids(root) == versions
    result = operations.prune(PruneConfig(root=root, keep=1))
    assert result["removed"] == planned["removed"] == [versions[3], versions[4]]
    assert registry.version_ids(root) == [*versions[:3], versions[5]]
    pointer = registry.current(root)
    assert pointer is not None
    assert pointer.removing == []
    assert operations.rollback(RollbackConfig(root=root))["current"] == versions[0]
    assert make_version(root, "g").startswith("0007-")


def test_keep_leaves_so_many_beside_the_current_and_the_previous_one(tmp_path: Path) -> None:
    root = str(tmp_path)
    for word in "abcdef":
        promote(root, make_version(root, word))
    operations.prune(PruneConfig(root=root, keep=2))
    assert len(registry.version_ids(root)) == 4
    for _ in range(3):
        operations.rollback(RollbackConfig(root=root))


def test_what_a_prune_is_removing_cannot_be_promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    versions = [make_version(root, word) for word in "abc"]
    promote(root, versions[2])
    refused: list[str] = []

    def promote_meanwhile(root: str, version: str) -> None:
        with pytest.raises(InputError, match="is being removed") as caught:
            promote(root, version)
        refused.append(str(caught.value))
        registry.remove_version(root, version)

    monkeypatch.setattr(operations, "remove_version", promote_meanwhile)
    assert operations.prune(PruneConfig(root=root, keep=0))["removed"] == versions[:2]
    assert len(refused) == 2


def test_each_move_says_who_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path)
    version = make_version(root, "a")
    operations.promote(PromoteConfig(root=root, version="1", reason="checked by hand"))
    promote(root, make_version(root, "b"))
    operations.rollback(RollbackConfig(root=root, reason="too many rejects"))
    shown = looking.show_version(ShowConfig(root=root))
    assert [(move["by"], move["reason"]) for move in shown["history"]] == [
        ("promote", "checked by hand"),
        ("rollback", "too many rejects"),
    ]
    assert all(move["user"] and move["host"] and move["job"] for move in shown["history"])
    with pytest.raises(SystemExit):
        main(["registry", "show", root, version])
    assert "too many rejects" in capsys.readouterr().out


def test_labels_are_names_and_move(tmp_path: Path) -> None:
    root = str(tmp_path)
    versions = [make_version(root, word) for word in "ab"]
    with pytest.raises(InputError, match="no current version"):
        operations.label(LabelConfig(root=root, version="1", label="canary"))
    promote(root, versions[0])
    assert operations.label(LabelConfig(root=root, version="1", label="canary"))["labels"] == {"canary": versions[0]}
    assert operations.label(LabelConfig(root=root, version="2", label="canary"))["labels"] == {"canary": versions[1]}
    promote(root, "canary")
    assert ghost_ray.load(root).version == versions[1]
    with pytest.raises(InputError, match="is not a label of"):
        operations.label(LabelConfig(root=root, version="1", label="canary", remove=True))
    assert operations.label(LabelConfig(root=root, version="2", label="canary", remove=True))["labels"] == {}
    for wrong in ("7", "0001", "a b", ""):
        with pytest.raises(ValueError, match="label"):
            LabelConfig(root=root, version="1", label=wrong)


def test_prune_removes_what_killed_refits_left_but_nothing_else(tmp_path: Path) -> None:
    root = str(tmp_path)
    version = make_version(root, "a")
    promote(root, version)
    (tmp_path / "versions" / f".0002-{'0' * 12}.partial" / "model").mkdir(parents=True)
    (tmp_path / "versions" / f"0003-{'0' * 12}").mkdir()
    (tmp_path / "versions" / "somebody-elses").mkdir()
    operations.prune(PruneConfig(root=root))
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == [version, "somebody-elses"]


def test_list_show_and_status_tell_what_is_there(root: str) -> None:
    a, b = make_version(root, "a", accuracy=0.5), make_version(root, "b")
    promote(root, a)
    attempt = registry.Attempt(root)
    listed = looking.list_versions(RegistryConfig(root=root))
    assert [(v["version"], v["role"], v["summary"]["accuracy"]) for v in listed["versions"]] == [
        (b, None, 0.9),
        (a, "current", 0.5),
    ]
    assert looking.show_version(ShowConfig(root=root))["version"] == a
    assert looking.show_version(ShowConfig(root=root, version="2"))["drift"]["changed"] == ["weights"]
    shown = status(StatusConfig(root=root))
    assert shown["current"]["version"] == a
    assert 0 <= shown["current"]["age_seconds"] < 60
    assert shown["running"] is None
    assert shown["attempts"][0]["outcome"] == "interrupted"
    with registry.hold(root, "refit", job="x"):
        shown = status(StatusConfig(root=root))
        assert shown["running"]["job"] == "x"
        assert shown["attempts"][0]["outcome"] == "running"
    attempt.end("promoted", version=a)
    shown = status(StatusConfig(root=root))
    assert (shown["attempts"][0]["outcome"], shown["attempts"][0]["version"]) == ("promoted", a)
    json.dumps(shown, allow_nan=False)


def test_only_the_newest_attempts_are_kept(tmp_path: Path) -> None:
    for number in range(55):
        registry.Attempt(str(tmp_path)).end("up to date", reason=str(number))
    kept = registry.last_attempts(str(tmp_path), 100, running=None)
    assert [attempt.get("reason") for attempt in kept] == [str(number) for number in range(54, 4, -1)]


def test_load_gives_the_current_version_and_refresh_the_next(root: str) -> None:
    make_version(root, "a")
    with pytest.raises(InputError, match=r"has no current\.json yet"):
        ghost_ray.load(root)
    promote(root, "1")
    loaded = ghost_ray.load(root)
    assert (loaded.threshold, float(loaded.model.gaussians.mean[0, 0])) == (1.0, 1.0)
    assert loaded.refresh() is loaded
    promote(root, make_version(root, "b"))
    newer = loaded.refresh()
    assert (loaded.threshold, newer.threshold, float(newer.model.gaussians.mean[2, 3])) == (1.0, 2.0, 2.0)
    plain = ghost_ray.load(newer.model.uri)
    assert plain.version is None
    assert plain.refresh() is plain


def test_load_survives_a_prune_between_pointer_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    promote(root, make_version(root, "a"))
    stale = registry.current(root)
    promote(root, make_version(root, "b"))
    promote(root, make_version(root, "c"))
    operations.prune(PruneConfig(root=root, keep=0))
    answers = [Found(stale)]
    real = registry.loading.find_pointer
    monkeypatch.setattr(registry.loading, "find_pointer", lambda uri: answers.pop() if answers else real(uri))
    assert ghost_ray.load(root).threshold == 3.0


def test_a_version_removed_while_it_is_read_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    first, second = make_version(root, "a"), make_version(root, "b")
    promote(root, first)
    real = Model.thresholds

    def pruned_meanwhile(model: Model) -> dict[str, Any] | None:
        if first in model.uri:
            promote(root, second)
            registry.remove_version(root, first)
        return real(model)

    monkeypatch.setattr(Model, "thresholds", pruned_meanwhile)
    loaded = ghost_ray.load(root)
    assert (loaded.version, loaded.threshold) == (second, 2.0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "dictionary"),
        (b'{"version": "0001-000000000000"}', "history"),
        (
            b'{"version": "x", "history": '
            b'[{"version": "../../x", "previous": null, "at": "2026-01-01T00:00:00Z", "by": "refit"}]}',
            "is not a version id",
        ),
        (
            b'{"version": "0001-00000000000f", "history": '
            b'[{"version": "0001-000000000000", "previous": null, "at": "2026-01-01T00:00:00Z", "by": "refit"}]}',
            "last of its history",
        ),
    ],
)
def test_a_broken_pointer_is_refused_in_one_line(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "current.json").write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        ghost_ray.load(str(tmp_path))
    assert "\n" not in str(caught.value)


def _read_for_ever(root: str, seen: multiprocessing.SimpleQueue, count: int) -> None:
    versions: set[int] = set()
    for number_read in range(100 * count):
        if number_read >= count and len(versions) > 3:  # on a busy machine, few versions are made meanwhile
            break
        loaded = ghost_ray.load(root)
        means = loaded.model.gaussians.mean
        assert loaded.version is not None
        number = int(loaded.version.split("-")[0])
        assert (means == number).all()
        assert loaded.threshold == number
        versions.add(number)
    seen.put(versions)


def test_a_reader_sees_only_whole_versions_while_they_change(tmp_path: Path) -> None:
    root = str(tmp_path)
    promote(root, make_version(root, "0"))
    context = multiprocessing.get_context("spawn")
    seen = context.SimpleQueue()
    reader = context.Process(target=_read_for_ever, args=(root, seen, 300))
    reader.start()
    word = 0
    while reader.is_alive():
        word += 1
        promote(root, make_version(root, str(word)))
        if word % 7 == 0:
            operations.prune(PruneConfig(root=root, keep=1))
        if word % 5 == 0:
            operations.rollback(RollbackConfig(root=root))
    reader.join()
    assert reader.exitcode == 0
    assert len(seen.get()) > 3


def test_leftover_temporary_files_are_not_taken_for_a_pointer(tmp_path: Path) -> None:
    root = str(tmp_path)
    version = make_version(root, "a")
    promote(root, version)
    (tmp_path / "current.json.12ab34cd.tmp").write_bytes(b'{"vers')
    assert ghost_ray.load(root).version == version
    assert kind_of(join(root, "current.json")) == "file"


def test_a_version_whose_manifest_names_another_is_refused(tmp_path: Path) -> None:
    root = str(tmp_path)
    version = make_version(root, "a")
    os.rename(tmp_path / "versions" / version, tmp_path / "versions" / f"0009-{version[5:]}")
    with pytest.raises(InputError, match="its manifest names"):
        promote(root, "9")
    assert registry.current(root) is None


def test_numbers_that_are_no_numbers_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(str(tmp_path / "x.json"), {"accuracy": float("nan")})


def test_the_command_line_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path)
    a, b = make_version(root, "a"), make_version(root, "b")

    def run_cli(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert isinstance(stop.value.code, int)
        return stop.value.code, *capsys.readouterr()

    assert run_cli("registry", "promote", root, "1")[0] == 0
    assert json.loads(run_cli("registry", "promote", root, "2", "--json")[1])["previous"] == a
    assert b in run_cli("registry", "list", root)[1]
    assert "current" in run_cli("registry", "show", root)[1]
    assert "held" in run_cli("registry", "rollback", root)[1]
    assert a in run_cli("status", root)[1]
    assert run_cli("registry", "prune", root, "--keep", "1")[0] == 0
    code, out, err = run_cli("registry", "promote", root, "7")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "VERSION '7'" in err
