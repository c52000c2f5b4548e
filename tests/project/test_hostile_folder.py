"""A folder from elsewhere is data: whatever its manifests name, nothing of it is imported, opened or contacted.

A child process records what Python's audit hooks see. Arrow opens files and sockets without them, so the kernel also
tells which files of a private folder were opened, and a server counts who connects.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.registries import make_promoted
from support.results import make_evaluation
from support.stores import Toy, write_store, write_toy_model
from support.study_folders import write_study

from ghost_ray.files.digests import digests_of
from ghost_ray.files.json_files import sealed
from ghost_ray.model import write_threshold

IN_OPEN = 0x20
WATCHED = """
import json, os, sys
events = []
kinds = ("import", "open", "socket.", "subprocess.", "os.exec", "os.system", "os.posix_spawn")
def note(event, arguments):
    if event.startswith(kinds):
        events.append([event, repr(arguments)[:2000]])
sys.addaudithook(note)
try:
    exec(sys.argv[2])
finally:
    with open(sys.argv[1], "w") as out:
        json.dump(events, out)
"""


class Opened:
    """Which files in a folder anyone opens, as Linux tells."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = libc.inotify_init1(os.O_NONBLOCK)
        assert self._handle >= 0
        assert libc.inotify_add_watch(self._handle, os.fsencode(folder), IN_OPEN) >= 0

    def any(self) -> bool:
        try:
            return bool(os.read(self._handle, 4096))
        except BlockingIOError:
            return False


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Listens and never answers; who connects waits in its queue."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A picture that belongs to nobody else."""
    folder = tmp_path / "private-attacker-wants"
    (folder / "class").mkdir(parents=True)
    Image.new("RGB", (40, 40), (200, 10, 10)).save(folder / "class" / "0.jpg")
    return folder


@pytest.fixture
def sent(tmp_path: Path, server: socket.socket, private: Path) -> Path:
    """A model, a store, an evaluation, a study and a registry, whose files name code, places and a host."""
    folder = tmp_path / "sent"
    rng = np.random.default_rng(0)
    toy = Toy.make(rng, classes=8, dimensions=24)
    embedding, label = toy.known(rng, 200)
    write_store(folder / "store", embedding, label, toy)
    write_toy_model(folder / "model", embedding, label, toy)
    write_threshold(str(folder / "model"), {"threshold": 0.0, "rule": "threshold"})
    (folder / "evaluation").mkdir()
    make_evaluation(folder / "evaluation")
    (folder / "evaluation" / "scores").mkdir()
    for name, row_label in (("known", 0), ("near", -1), ("far", -1)):
        row = {"key": ["class/0.jpg"], "pred": [0], "label": [row_label], "score": [0.5]}
        pq.write_table(pa.table(row), folder / "evaluation" / "scores" / f"ghost__{name}.parquet")
    study = write_study(folder / "study", ("swin-t",), ("ninco",), ("ghost", "msp"), rows=60)
    (folder / "study" / "results.json").write_text(json.dumps(study))
    about = {"format": "ghost_ray", "kind": "study", "network": {"name": "", "classes": 1, "dimensions": 1}, "rows": 0}
    (folder / "study" / "manifest.json").write_text(json.dumps(about))
    make_promoted(str(folder / "registry"), "a")
    host = f"s3://attacker/x?endpoint_override=127.0.0.1:{server.getsockname()[1]}&scheme=http"
    for manifest in sorted(
        folder.rglob("manifest.json"), key=lambda path: -len(path.parts)
    ):  # a version's after its parts'
        if manifest.parent.name == "model":
            (manifest.parent / "attacker.py").write_text("def factory(): raise SystemExit('attacked')")
        _name_everything(manifest, host, private)
    metrics = folder / "evaluation" / "metrics.json"
    found = json.loads(metrics.read_text())
    found["methods"].append("sent.model.attacker:factory")
    found["results"].append({**found["results"][0], "method": "sent.model.attacker:factory"})
    found["results"].append({**found["results"][0], "unknown": f"/../../../{private.name}/class/0"})
    metrics.write_text(json.dumps(found))
    return folder


def _name_everything(manifest: Path, host: str, private: Path) -> None:
    """Write a manifest again, sealed, in which every field that may hold a name or a place holds a hostile one."""
    content: dict[str, Any] = json.loads(manifest.read_text())
    content.pop("seal", None)
    places = dict.fromkeys(("data", "weights", "root", "fit", "store", "registry", "out", "classes"), host)
    if manifest.parent.name == "store":
        places["data"] = str(private)
    known = str(manifest.parents[1] / "store")  # which names the private folder
    content["config"] = {**places, "known": known, "unknown": {"near": host, "far": known, "ninco": known}}
    content["config"] |= {"model": "sent.model.attacker:factory", "methods": ["sent.model.attacker:factory"]}
    content["data"] = [{"uri": host, "kind": "folder"}, {"uri": str(private), "kind": "folder"}]
    content.setdefault("network", {})["name"] = "sent.model.attacker:factory"
    if content.get("digests") is not None:
        content["digests"] = {name: digest.model_dump() for name, digest in digests_of(str(manifest.parent)).items()}
    manifest.write_bytes(sealed(content))


def in_child(tmp_path: Path, code: str) -> tuple[subprocess.CompletedProcess[str], list[tuple[str, str]]]:
    """Run code in a process whose working folder is where the folder was put; what happened in it."""
    for name in ("images", "cache"):
        (tmp_path / name).mkdir(exist_ok=True)
    Image.new("RGB", (40, 40)).save(tmp_path / "images" / "a.png")
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "AKIAVICTIM", "AWS_SECRET_ACCESS_KEY": "victim"}
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path / "events.json"), code],
        capture_output=True, text=True, timeout=500, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    return ended, [tuple(event) for event in json.loads((tmp_path / "events.json").read_text())]


def command(*words: str) -> str:
    return f"from ghost_ray.cli import main\nmain({list(words)!r})"


CALLED = """
import ghost_ray
ghost_ray.load('sent/model')
ghost_ray.load('sent/registry', require_digests=True)
ghost_ray.Ghost.load('sent/model')
"""
SERVED = """
from ghost_ray import OpenSetClassifier
from ghost_ray.errors import InputError
try:
    OpenSetClassifier.from_model('sent/model')
except InputError as error:
    print(error)
"""
DONE: dict[str, tuple[str, int, str]] = {
    "verify": (command("verify", "sent"), 0, ""),
    "status": (command("status", "sent/registry"), 0, ""),
    "registry show": (command("registry", "show", "sent/registry"), 0, ""),
    "load": (CALLED, 0, ""),
    "from_model": (SERVED, 0, "network=NAME"),
    "report": (command("report", "sent/evaluation", "sent/model", "sent/store", "--out", "page.html"), 0, ""),
    "report of a study": (command("report", "sent/study", "--out", "page.html"), 0, ""),
    "report of a registry": (command("report", "sent/registry", "--out", "page.html"), 0, ""),
    "score of rows": (command("score", "sent/model", "--store", "sent/store", "--out", "s.parquet"), 0, ""),
    "score of images": (command("score", "sent/model", "--data", "images", "--out", "s.parquet"), 2, "--network NAME"),
}


@pytest.mark.parametrize("what", DONE)
def test_nothing_that_a_folder_names_is_imported_opened_or_contacted(
    what: str, tmp_path: Path, sent: Path, private: Path, server: socket.socket
) -> None:
    code, exit_code, said = DONE[what]
    watch, watched = Opened(private), Opened(private / "class")
    ended, events = in_child(tmp_path, code)
    assert ended.returncode == exit_code, ended.stderr
    assert said in ended.stdout + ended.stderr
    assert any(event == "import" for event, _ in events)
    assert [event for event in events if "attacker" in event[1]] == []
    assert [event for event in events if event[0] in ("socket.connect", "socket.getaddrinfo")] == []
    assert not watch.any()
    assert not watched.any()
    with pytest.raises(BlockingIOError):
        server.accept()
    page = tmp_path / "page.html"
    assert not page.exists() or what == "report of a study" or "data:image/jpeg" not in page.read_text()


def test_a_study_that_names_other_folders_is_refused(tmp_path: Path, sent: Path, private: Path) -> None:
    results = sent / "study" / "results.json"
    study = json.loads(results.read_text())
    study["networks"][0]["evaluations"] = {"../../../elsewhere": [["ghost", "ninco"], ["msp", "ninco"]]}
    results.write_text(json.dumps(study))
    shutil.copytree(sent / "study" / "swin-t" / "evaluation", tmp_path.parent / "elsewhere", dirs_exist_ok=True)
    ended, _ = in_child(tmp_path, command("report", "sent/study", "--out", "page.html"))
    assert ended.returncode == 2
    assert "elsewhere' is not the name of a folder" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "os:abort",
        "sys:exit",
        "resnet18.a:b",
        "hf-hub:someone/net",
        "local-dir:/tmp",
        "no-such-net",
        "torchvision:no",
        "x/y",
    ],
)
def test_only_published_names_are_taken_from_a_manifest(name: str, sent: Path) -> None:
    from ghost_ray import OpenSetClassifier
    from ghost_ray.errors import InputError

    manifest = sent / "model" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["network"]["name"] = name
    content.pop("seal")
    manifest.write_bytes(sealed(content))
    with pytest.raises(InputError, match=re.escape(f"network {name!r}: is named by the manifest of")):
        OpenSetClassifier.from_model(str(sent / "model"))


def test_published_names_are(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ghost_ray.backbone import name_from_manifest

    for name in ("resnet18", "resnet18.a1_in1k", "swin-t", "torchvision:swin_t", "torchvision:swin_t:IMAGENET1K_V1"):
        assert name_from_manifest(name, "somewhere") == name


@pytest.fixture
def watching(tmp_path: Path) -> Callable[[], bool]:
    (tmp_path / "seen").write_text("x")
    return Opened(tmp_path).any


def test_the_watch_itself_sees_what_arrow_opens(tmp_path: Path, watching: Callable[[], bool]) -> None:
    from ghost_ray.files import read_bytes

    assert not watching()
    read_bytes(str(tmp_path / "seen"))
    assert watching()
