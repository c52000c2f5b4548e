"""The page on reproducing the paper: its snippets run, its sections are valid, its numbers are those of the package."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from scipy.io import savemat
from support.pictures import write_folder

from ghost_ray import published
from ghost_ray.backbone import PRESETS
from ghost_ray.cli import _make_group
from ghost_ray.config import parse_yaml
from ghost_ray.config.refit_settings import DataSection, LabelledSection
from ghost_ray.sources import map_labels, open_source, select

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduce.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SNIPPETS = re.findall(r"\*\(runs as a test\)\*:\s*```python\n(.*?)```", PAGE, re.DOTALL)


def run_snippet(code: str, folder: Path) -> str:
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_only_options_that_exist(page: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] != ["ghost-ray"]:
            continue
        command, arguments = _make_group(), words[1:]
        context = None
        while isinstance(command, click.Group):
            context = click.Context(command, parent=context)
            command, arguments = command.get_command(context, arguments[0]), arguments[1:]
            assert command is not None, line
        command.make_context(words[1], arguments, parent=context)


def test_the_validation_set_is_labelled_by_the_development_kit(tmp_path: Path) -> None:
    """A kit of three classes, numbered against the order of their WordNet ids."""
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    kinds = [("ILSVRC2012_ID", "u2"), ("WNID", "O"), ("words", "O")]
    rows = [(1, "n02119789", "kit fox"), (2, "n01440764", "tench"), (3, "n01443537", "goldfish")]
    savemat(kit / "meta.mat", {"synsets": np.array(rows, dtype=kinds)})
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n1\n2\n2\n")
    assert "4 images" in run_snippet(SNIPPETS[0], tmp_path)
    source = open_source(str(tmp_path / "imagenet_val.txt"), root=str(tmp_path))
    labels = map_labels(source, 1000).apply(source.preview.items["label"])
    found = dict(zip(source.preview.items["key"].to_pylist(), labels.tolist(), strict=True))
    assert found == {f"ILSVRC2012_val_{n:08d}.JPEG": k for n, k in ((1, 1), (2, 278), (3, 0), (4, 0))}


def test_the_splits_of_imagenet_21k_become_lists_to_sample_from(tmp_path: Path) -> None:
    root = tmp_path / "ImageNet-21K" / "imagenet21k_val"
    write_folder(root, per_class=5)
    splits = {"Easy": ["ant"], "Medium": ["bee"], "Hard": ["cat", "elk"]}
    (tmp_path / "SSB" / "splits").mkdir(parents=True)
    (tmp_path / "SSB" / "splits" / "imagenet_ssb_splits.json").write_text(json.dumps({"unknown_classes": splits}))
    said = run_snippet(SNIPPETS[1], tmp_path)
    assert "easy 5 images, 0 classes are missing" in said
    assert "hard 10 images, 1 classes are missing elk" in said
    source = open_source(str(tmp_path / "ssb_hard.txt"), root=str(root))
    chosen = select(source.preview.items, per_class=2)["key"].to_pylist()
    assert sorted(key.split(os.sep)[0] for key in chosen) == ["bee", "bee", "cat", "cat"]
    assert all((root / key).exists() for key in chosen)


def test_the_sections_are_valid_and_name_the_papers_sets() -> None:
    text = PAGE.split("<!-- sections -->")[1].split("```yaml\n")[1].split("```")[0]
    sections = parse_yaml(text)
    for name in ("fit", "known"):
        LabelledSection.model_validate(sections[name])
    for settings in sections["unknown"].values():
        DataSection.model_validate(settings)
    assert set(sections["unknown"]) == {n.unknown for n in published.numbers() if n.table != "text"}


def test_the_numbers_of_images_are_those_of_the_package() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([\d,]+(?: or [\d,]+)?) \|", PAGE, re.MULTILINE))
    assert set(rows) == {n.unknown for n in published.numbers() if n.table != "text"}
    for name, images in rows.items():
        assert tuple(int(number.replace(",", "")) for number in images.split(" or ")) == published.images_of(name)


def test_the_networks_are_the_presets() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| ([\d.]+) % \| \d+ \|$", PAGE, re.MULTILINE)
    assert {name: round(float(accuracy) / 100, 6) for name, accuracy in rows} == {
        name: preset.accuracy for name, preset in PRESETS.items()
    }


def test_it_says_plainly_that_nothing_was_compared() -> None:
    sentence = "Nothing here has been compared with the paper's figures on its own networks and data yet"
    assert sentence in PAGE
    assert sentence in " ".join((ROOT / "README.md").read_text().split())
