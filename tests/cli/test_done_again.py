"""A command that is run again after it has ended well, as schedulers do: it says so, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ghost_ray.cli import main


def ended(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, output and messages of a command."""
    capsys.readouterr()
    try:
        main(list(words))
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    for kind in ("train", "strangers"):
        features = rng.exponential(size=(150, 5))
        logits, labels = rng.standard_normal((150, 3)) + 5, rng.integers(0, 3, 150)
        np.savez(tmp_path / f"{kind}.npz", features=features, logits=logits, labels=labels)
    for number in range(6):
        file = tmp_path / "images" / f"{number % 4:03}-class" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), np.uint8)).save(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


IMPORT = "import --features train.npz --logits train.npz --labels train.npz --out train --json"
STRANGERS = "import --features strangers.npz --logits strangers.npz --unknown --out strangers --json"
# Each with a change that makes another result.
COMMANDS = {
    "import": (IMPORT, "--unknown"),
    "extract": (
        "extract --data images --model support.networks:small --unknown --num-cpus 2 --out images-store --json",
        "--limit 3",
    ),
    "fit": ("fit train --out model --json", None),
    "audit": ("audit train --out audit --json", "--alpha 0.2"),
    "evaluate": (
        "evaluate --fit train --known train --unknown u=strangers --methods ghost,msp --out evaluation --json",
        "--draws 4",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_second_time_says_that_it_is_done(place: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    command, change = COMMANDS[name]
    for before in (IMPORT, STRANGERS):
        assert ended(before.split(), capsys)[0] == 0
    first = ended(command.split(), capsys)
    assert first[0] == 0, first[2]
    out = place / command.split("--out ")[1].split()[0]
    made = snapshot(out)
    code, result, said = ended(command.split(), capsys)
    assert code == 0, said
    assert "is done already: the same settings and inputs made it at 20" in said
    before, again = json.loads(first[1]), json.loads(result)
    assert again == {**before, "images_per_second": None} if "images_per_second" in before else again == before
    assert snapshot(out) == made
    if change is not None:
        code, _, said = ended([*command.split(), *change.split()], capsys)
        assert code == 2
        assert f"exists already and was made differently: {change.split()[0]} was " in said
        assert "--overwrite" in said
        assert snapshot(out) == made


def test_other_inputs_make_another_result(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(IMPORT.split(), capsys)[0] == 0
    assert ended(["fit", "train", "--out", "model"], capsys)[0] == 0
    assert ended(STRANGERS.replace("--unknown", "--labels strangers.npz").split(), capsys)[0] == 0
    code, _, said = ended(["fit", "strangers", "--out", "model"], capsys)
    assert code == 2
    assert "was made differently: from other inputs, or inputs that have changed" in said


def test_an_audit_gives_its_answer_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(IMPORT.split(), capsys)[0] == 0
    command = ["audit", "train", "--out", "audit", "--json"]
    first = ended([*command, "--fail-above", "0.01"], capsys)
    again = ended([*command, "--fail-above", "0.01"], capsys)
    assert first[0] == again[0] == 1
    assert first[2].splitlines()[-1] == again[2].splitlines()[-1]
    assert "more than --fail-above 0.01" in again[2].splitlines()[-1]
    # Another limit needs no other audit.
    assert ended([*command, "--fail-above", "1"], capsys)[0] == 0
