"""Results in places where others work, that are interrupted, or that somebody prepared: nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.object_stores import ObjectStore, object_store_in_environment

from ghost_ray.errors import InputError, JobFailed
from ghost_ray.files import OutputFolder, claims, join, kind_of, names_in, output_file, read_bytes, write_bytes
from ghost_ray.files.claims import Busy
from ghost_ray.files.download_cache import _cache

# A process that writes a result and is killed by itself at a moment that the test names.
_WRITER = """
import os, signal, sys
from ghost_ray.files import OutputFolder, atomic_output, join, write_bytes, write_json

place, content, moment = sys.argv[1:]
actions = 0

def act():
    global actions
    actions += 1
    if moment == str(actions):
        os.kill(os.getpid(), signal.SIGKILL)

if moment != "never":
    copy, delete = OutputFolder._copy, OutputFolder._delete
    remove, tree = atomic_output.remove_file, atomic_output.remove_tree

    def killed_between(names, do):
        for one in sorted(names):
            act()
            do(one)

    OutputFolder._copy = lambda self, names: killed_between(names, lambda one: copy(self, [one]))
    OutputFolder._delete = lambda self, name: killed_between([name], lambda one: delete(self, one))
    atomic_output.remove_file = lambda uri: killed_between([uri], remove)
    atomic_output.remove_tree = lambda uri: killed_between([uri], tree)

with OutputFolder(place, overwrite=True) as output:
    for name in ("same", content):
        write_bytes(join(output.staging, name), content.encode())
    write_json(join(output.staging, "manifest.json"), {"format": "ghost_ray", "kind": "model"})
    print("held", flush=True)
    if moment == "wait":
        sys.stdin.read()
    output.publish()
"""


def write(place: str, content: str, moment: str = "never") -> int:
    return subprocess.run([sys.executable, "-c", _WRITER, place, content, moment], timeout=120, check=False).returncode


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store_in_environment(monkeypatch) as store:
        yield store


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "deep" / "result")
    return f"s3://{request.getfixturevalue('store').bucket}/deep/result"


def content_of(place: str) -> dict[str, bytes]:
    return {name: read_bytes(join(place, name)) for name in names_in(place) if name != "manifest.json"}


def test_a_publication_killed_at_any_moment_leaves_the_old_result_or_is_completed(store: ObjectStore) -> None:
    """An object store has no rename. Whenever the process dies, one whole result can be had."""
    place = f"s3://{store.bucket}/deep/result"
    old, new = ({"same": word, word.decode(): word} for word in (b"old", b"new"))
    ends = []
    for moment in range(1, 20):
        assert write(place, "old") == 0
        assert content_of(place) == old
        code = write(place, "new", str(moment))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        begun = kind_of(join(f"{place}.partial", ".publishing.json")) == "file"
        if kind_of(join(place, "manifest.json")) == "file" and not begun:
            assert content_of(place) in (old, new)
        # Any command that looks at the place completes what was begun, before it says that something is there.
        with pytest.raises(InputError, match="exists already"):
            OutputFolder(place)
        assert content_of(place) == new
        ends.append(moment)
    assert len(ends) >= 6  # copies, the manifest's removal, its copy, the old file's removal, staging's
    assert kind_of(f"{place}.partial") == "nothing"
    assert kind_of(f"{place}.claim") == "nothing"


def test_the_files_of_a_result_on_an_object_store_are_all_replaced_and_nothing_is_left_beside(place: str) -> None:
    for word in ("old", "new"):
        assert write(place, word) == 0
    assert content_of(place) == {"same": b"new", "new": b"new"}
    assert [kind_of(f"{place}{end}") for end in (".partial", ".claim")] == ["nothing", "nothing"]


def test_of_two_processes_with_one_place_the_second_is_told_who_works_there(place: str) -> None:
    command = [sys.executable, "-c", _WRITER, place, "first", "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=rf"another run works on .* \(host .*, pid {first.pid}, since 20") as told:
            OutputFolder(place)
        assert told.value.exit_code == 1
        first.stdin.close()
        assert first.wait(60) == 0
    assert content_of(place) == {"same": b"first", "first": b"first"}


def test_who_passes_the_first_look_at_the_same_moment_is_refused_before_anything_is_touched(place: str) -> None:
    second = OutputFolder(place)
    with OutputFolder(place) as first:
        write_bytes(join(first.staging, "file"), b"mine")
        with pytest.raises(Busy, match="another run"):
            second.__enter__()
        assert read_bytes(join(first.staging, "file")) == b"mine"


def test_a_killed_process_does_not_keep_its_place(place: str) -> None:
    command = [sys.executable, "-c", _WRITER, place, "first", "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        first.kill()
    assert write(place, "second") == 0


def test_a_claim_of_another_machine_ends_when_it_is_not_renewed(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://{store.bucket}/result"
    claims.claim_on(f"{place}.claim", place, "out", kept=False, probed=False).take({"host": "elsewhere", "pid": 1})
    with pytest.raises(Busy, match="host elsewhere, pid 1"):
        OutputFolder(place)
    monkeypatch.setattr(claims, "EXPIRY_SECONDS", -1.0)
    with OutputFolder(place):
        pass


def test_a_result_of_another_kind_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text(json.dumps({"format": "ghost_ray", "kind": "store"}))
    with pytest.raises(InputError, match=r"is a result of another kind \(store\)"):
        OutputFolder(str(out), kind="model", overwrite=True)
    OutputFolder(str(out), kind="store", overwrite=True)


def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (str(pipe), "/dev/null"):
        before = os.stat(place).st_mode
        with pytest.raises(InputError, match="neither a file nor a folder"), output_file(place, overwrite=True):
            pass
        with pytest.raises(InputError, match="neither a file nor a folder"):
            OutputFolder(place, overwrite=True)
        with pytest.raises(InputError, match="neither a file nor a folder"):
            write_bytes(place, b"x")
        assert os.stat(place).st_mode == before


def test_links_that_somebody_put_beside_a_result_lead_nowhere(tmp_path: Path) -> None:
    profile, elsewhere = tmp_path / "profile", tmp_path / "elsewhere"
    profile.write_text("mine")
    elsewhere.mkdir()
    (tmp_path / "s.parquet.partial").symlink_to(profile)
    with output_file(str(tmp_path / "s.parquet"), overwrite=False) as handle:
        handle.write(b"scores")
    assert (tmp_path / "s.parquet").read_bytes() == b"scores"
    (tmp_path / ".model.partial").symlink_to(elsewhere)
    with pytest.raises(InputError, match="is not a folder — remove it"):
        OutputFolder(str(tmp_path / "model")).__enter__()
    (tmp_path / ".model.partial").unlink()
    (tmp_path / ".model.claim").symlink_to(profile)
    with pytest.raises(InputError, match="cannot be written"):
        OutputFolder(str(tmp_path / "model")).__enter__()
    assert profile.read_text() == "mine"
    assert list(elsewhere.iterdir()) == []
    assert not (tmp_path / "model").exists()


def test_a_link_as_the_place_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "large disk")
    assert write(str(tmp_path / "out"), "new") == 0
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "large disk" / "new").read_bytes() == b"new"
    (tmp_path / "scores").symlink_to(tmp_path / "large disk" / "scores")
    with output_file(str(tmp_path / "scores"), overwrite=True) as handle:
        handle.write(b"1")
    assert (tmp_path / "scores").is_symlink()
    assert {entry.name for entry in tmp_path.iterdir()} == {"large disk", "out", "scores"}


def test_a_planted_cache_of_copies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert stat.S_IMODE(_cache().stat().st_mode) == 0o700
    _cache().rmdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / f"ghost_ray-files-{os.getuid()}").symlink_to(tmp_path / "mine")
    with pytest.raises(JobFailed, match="not a folder of this user"):
        _cache()


# What the kernel was asked to make last, in order, and the renames.
_WATCHED = """
import os, sys
fsync, replace, rename = os.fsync, os.replace, os.rename

def synced(handle):
    print("sync", os.readlink(f"/proc/self/fd/{handle}"))
    fsync(handle)

def moving(do):
    def move(old, new, **more):
        do(old, new, **more)
        print("move", new)
    return move

os.fsync, os.replace, os.rename = synced, moving(replace), moving(rename)
from ghost_ray.config import ImportConfig
from ghost_ray.jobs.importing import run

out, features, logits = sys.argv[1:]
run(ImportConfig(out=out, features=features, logits=logits, unknown=True))
"""


def test_files_and_folders_last_before_the_manifest_and_the_folder_after_it_is_in_place(tmp_path: Path) -> None:
    arrays = [str(tmp_path / f"{name}.npy") for name in ("features", "logits")]
    for where in arrays:
        np.save(where, np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
    out, staging = str(tmp_path / "stores" / "out"), str(tmp_path / "stores" / ".out.partial")
    words = [sys.executable, "-c", _WATCHED, out, *arrays]
    seen = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    manifest, in_place = seen.index(f"move {staging}/manifest.json"), seen.index(f"move {out}")
    before = seen[:manifest]
    for path in (f"{staging}/rows/part-0000.arrow", f"{staging}/rows", staging):
        assert f"sync {path}" in before
    assert f"sync {staging}" in seen[manifest:in_place]
    assert f"sync {tmp_path / 'stores'}" in seen[in_place:]
