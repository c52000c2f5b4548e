"""The command line as a user meets it: help, examples, wrong input, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.stores import Toy, forget_digests, write_store

from ghost_ray.cli import main
from ghost_ray.cli.commands import COMMANDS

HEAVY = ("torch", "ray", "timm", "scipy", "numba", "matplotlib", "pandas", "statsmodels")


def ghost_ray(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ghost_ray", *words], capture_output=True, text=True, timeout=300, cwd=cwd, check=False
    )


def refused(*words: str, cwd: Path | None = None) -> str:
    """The one line of a refusal; checks that it is one line, on stderr, with exit code 2."""
    answer = ghost_ray(*words, cwd=cwd)
    return line_of(answer.returncode, answer.stdout, answer.stderr)


def line_of(code: object, output: str, errors: str) -> str:
    assert code == 2, errors
    assert output == ""
    assert len(errors.strip().splitlines()) == 1, errors
    assert errors.startswith("ghost-ray")
    return errors


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example_and_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\nfrom ghost_ray.cli import main\n"
        f"try: main({[*command.split(), '--help']})\n"
        f"finally: print('HEAVY', [m for m in {HEAVY} if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    assert f"ghost-ray {command or 'demo'}" in answer.stdout.split("Example:")[1]
    assert answer.stdout.rstrip().endswith("HEAVY []")


def test_a_misspelt_command_or_option_is_told_the_right_one() -> None:
    assert "'evaluate'" in refused("evalute")
    assert "--alpha" in refused("audit", "S", "--out", "O", "--alhpa", "1")


def test_every_command_says_what_is_missing() -> None:
    for command, missing in {"fit": "--out", "extract": "--model", "evaluate": "--out", "report": "DIR"}.items():
        assert missing in refused(command)


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A small imported store without a head, and one of unknowns, `strangers`, beside it."""
    for name, array in {
        "features": rng.standard_normal((60, 5)),
        "logits": rng.standard_normal((60, 3)),
        "labels": rng.integers(0, 3, 60),
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
    arrays = ["--features", "features.npy", "--logits", "logits.npy", "--labels", "labels.npy", "--json"]
    for more in (["--out", "store"], ["--out", "strangers", "--unknown"]):
        answer = ghost_ray("import", *arrays, *more, cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["rows"] == 60
    return tmp_path / "store"


def described(folder: Path, **otherwise: object) -> None:
    """A copy of the store whose manifest says something else."""
    shutil.copytree(folder.parent / "store", folder)
    forget_digests(folder)
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**content, **otherwise}))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_wrong_input_is_one_line_and_changes_nothing(
    store: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: a dozen others would spend their time importing torch."""
    here = store.parent
    monkeypatch.chdir(here)
    (here / "empty").mkdir()
    (here / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(here / "pictures" / "a.png")
    (here / "bad.yaml").write_text("alhpa: 0.1\n")
    (here / "twice.yaml").write_text("alpha: 0.1\nout: o\nalpha: 0.2\n")
    os.mkfifo(here / "pipe")
    described(here / "few", class_names=["only one"])
    long = "x" * 300
    locked = here / "file"
    locked.write_text("not a folder")
    before = snapshot(here)
    cases: list[tuple[list[str], list[str]]] = [
        (
            ["extract", "--data", "pictures", "--unknown", "--model", "resnet5O", "--out", "o"],
            ["--model", "resnet5O", "nearest"],
        ),
        (["extract", "--data", "nowhere", "--model", "resnet18", "--out", "o"], ["--data", "nowhere"]),
        (["extract", "--data", "empty", "--model", "resnet18", "--out", "o"], ["--data", "empty"]),
        (["fit", "empty", "--out", "o"], ["STORE", "empty", "manifest.json"]),
        (["fit", "nowhere", "--out", "o"], ["STORE", "nowhere", "does not exist"]),
        (["fit", "store", "--out", "store", "--overwrite"], ["--out", "store", "which this command reads (STORE)"]),
        (["fit", "store", "--out", "strangers", "--overwrite"], ["--out", "strangers", "another kind (store)"]),
        (["fit", "store", "--out", "empty/../file/x"], ["--out", "not writable"]),
        (["fit", "store", "--out", "file"], ["--out", "is a file"]),
        (["audit", "store", "--out", "o", "--alpha", "1.5"], ["--alpha", "1.5", "less than 1"]),
        (["audit", "store", "--out", "o", "--config", "bad.yaml"], ["bad.yaml", "alhpa", "alpha"]),
        (["audit", "store", "--out", "o", "--config", "none.yaml"], ["none.yaml", "does not exist"]),
        (
            [
                "evaluate",
                "--fit",
                "store",
                "--known",
                "store",
                "--unknown",
                "u=strangers",
                "--methods",
                "gost",
                "--out",
                "o",
            ],
            ["--methods", "gost", "ghost"],
        ),
        (["demo", "--out", "o", "--methods", "ghost,knm:k=3"], ["--methods", "knm", "'knn'"]),
        (
            ["extract", "--data", "pictures", "--model", "resnet18", "--out", "o", "--format", "fodler"],
            ["--format", "'folder'"],
        ),
        (["score", "store", "--store", "store", "--out", "o.parquet"], ["MODEL", "store", "expected 'model'"]),
        (["report", "empty"], ["DIR", "empty"]),
        (["report", long], ["DIR", "too long a name"]),
        (["fit", long, "--out", "o"], ["STORE", "too long a name"]),
        (["extract", "--data", long, "--model", "resnet18", "--out", "o"], ["--data", "too long a name"]),
        (["extract", "--data", "pipe", "--model", "resnet18", "--out", "o"], ["--data", "nor a regular file"]),
        (["extract", "--data", "/dev/zero", "--model", "resnet18", "--out", "o"], ["--data", "nor a regular file"]),
        (["audit", "store", "--config", "twice.yaml"], ["twice.yaml", "line 3: the key 'alpha' was given before"]),
        (["fit", "few", "--out", "o"], ["STORE", "few", "1 class names for 3 classes"]),
        (["demo", "--out", "o", "--methods", "knn:k=99999999999"], ["--methods", "k must be 1 to 10,000"]),
    ]
    for words, told in cases:
        with pytest.raises(SystemExit) as ended:
            main(words)
        line = line_of(ended.value.code, *capfd.readouterr())
        for word in told:
            assert word in line, f"{words}: {line}"
        assert snapshot(here) == before, words


def test_unwritable_output(store: Path) -> None:
    if os.geteuid() == 0:
        target = "/proc/ghost"  # not even root may write here
    else:
        store.parent.chmod(0o555)
        target = "out"
    assert "--out" in refused("fit", "store", "--out", target, cwd=store.parent)
    store.parent.chmod(0o755)


def test_version() -> None:
    assert ghost_ray("--version").stdout.startswith("ghost-ray, version")


@pytest.mark.parametrize(
    ("words", "begun", "completed"),
    [
        ("", "ev", ["plain,evaluate"]),
        ("evaluate", "--dr", ["plain,--draws", "plain,--draw-size"]),
        ("evaluate --methods", "ghost,ms", ["plain,ghost,msp"]),
        ("audit --family", "", ["plain,all", "plain,class"]),
        ("extract --format", "web", ["plain,webdataset"]),
        ("fit", "stores/", ["file,stores/"]),
        ("audit --alpha", "0", []),
    ],
)
def test_shells_are_told_what_may_follow(
    words: str, begun: str, completed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["ghost-ray", *words.split()]
    monkeypatch.setenv("_GHOST_RAY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join([*given, begun]))
    monkeypatch.setenv("COMP_CWORD", str(len(given)))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == completed


def test_quiet_prints_the_result_alone(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = Toy.make(rng)
    write_store(tmp_path / "store", *toy.known(rng, 100), toy)
    for words, told in (([], True), (["--quiet"], False)):
        with pytest.raises(SystemExit):
            main(["fit", str(tmp_path / "store"), "--out", str(tmp_path / "model"), "--overwrite", *words])
        shown = capsys.readouterr()
        assert ("fit: 100/100 rows" in shown.err) == told
        assert "model" in shown.out
    assert shown.err == ""
