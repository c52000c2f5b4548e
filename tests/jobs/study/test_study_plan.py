"""`study --plan`: what is there, what is missing and what it takes, without a cluster, a network or an image read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from support.object_stores import object_store_in_environment
from support.pictures import write_folder
from support.studies import settings, stores_of

from ghost_ray.cli import main
from ghost_ray.config import ExtractConfig, build
from ghost_ray.config.study_settings import StudyConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.jobs.extract import run as extract
from ghost_ray.jobs.study import run

PAPER = Path(__file__).parents[3] / "deploy" / "paper-study.yaml"
NETWORKS = ["mae-h", "convnextv2-h", "swin-t", "densenet-121"]


def _write(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)


def _lay_out(root: Path) -> None:
    """A tiny copy of everything that the paper's file names, as docs/reproduce.md lays it out."""
    classes = ["n01440764", "n01443537"]
    for split in ("train", "val"):
        _write(root / "imagenet" / split, [f"{wnid}/{i}.JPEG" for wnid in classes for i in range(3)])
    images = [f"n{i}/{j}.jpg" for i in range(2) for j in range(60)]
    _write(root / "ImageNet-21K" / "imagenet21k_val", images)
    for name in ("easy", "hard"):
        (root / f"ssb_{name}.txt").write_text("".join(f"{path} {path.split('/')[0]}\n" for path in images))
    _write(root / "openimage_o", ["a.jpg", "b.jpg"])
    (root / "openimage_o.txt").write_text("a.jpg\nb.jpg\n")
    for folder in ("NINCO/NINCO_OOD_classes/x", "iNaturalist/images", "Places/images", "SUN/images", "dtd/images/y"):
        _write(root / folder, [f"{i}.jpg" for i in range(4)])
    (root / "mae_finetuned_vit_huge.pth").write_bytes(b"weights")


@pytest.fixture
def at_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyConfig:
    monkeypatch.chdir(tmp_path)
    return build(StudyConfig, {"plan": True}, str(PAPER))


def test_the_papers_file_is_planned_from_a_copy_of_its_data(at_the_paper: StudyConfig, tmp_path: Path) -> None:
    _lay_out(tmp_path)
    plan: Any = run(at_the_paper)
    images = {part["role"]: part["images"] for part in plan["data"]}
    assert images["fit"] == images["known"] == 6
    assert images["unknown.21k-p-easy"] == images["unknown.21k-p-hard"] == 100  # 50 of the 60 of each class
    assert images["unknown.ninco"] == images["unknown.textures"] == 4
    size = (tmp_path / "openimage_o" / "a.jpg").stat().st_size
    listed = next(part for part in plan["data"] if part["role"] == "unknown.openimage-o")
    assert listed["expected"] == [17632, 15869]
    assert (listed["bytes"], listed["estimated"]) == (2 * size, False)
    assert [network["network"] for network in plan["networks"]] == NETWORKS
    for network in plan["networks"]:
        assert network["images"] == sum(images.values())
        assert len(network["extract"]) == 10
        assert network["cells"] == 64
        assert network["requests"] >= network["images"]
    assert plan["bytes"] == 4 * sum(part["bytes"] for part in plan["data"])
    assert not plan["unsized"]
    assert not plan["estimated"]
    assert not (tmp_path / "paper-study").exists()


def test_the_bytes_of_a_long_list_are_estimated(
    at_the_paper: StudyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _lay_out(tmp_path)
    monkeypatch.setattr("ghost_ray.jobs.study.image_sizes._ASKED", 30)
    plan: Any = run(at_the_paper)
    size = (tmp_path / "openimage_o" / "a.jpg").stat().st_size
    easy = next(part for part in plan["data"] if part["role"] == "unknown.21k-p-easy")
    assert (easy["bytes"], easy["estimated"], plan["estimated"]) == (100 * size, True, True)
    with pytest.raises(SystemExit) as stop:
        main(["study", "--config", str(PAPER), "--plan"])
    assert stop.value.code == 0
    assert "about" in capsys.readouterr().out


def test_what_is_not_there_is_named_all_at_once(at_the_paper: StudyConfig, tmp_path: Path) -> None:
    with pytest.raises(GateFailed, match="not everything that the study needs is there") as refusal:
        run(at_the_paper)
    plan: Any = refusal.value.result
    assert all(part["problem"] == "does not exist" for part in plan["data"])
    assert plan["networks"][0]["problem"] == "mae_finetuned_vit_huge.pth is not there"
    assert plan["networks"][1]["problem"] is None
    with pytest.raises(InputError, match=r"fit\.data"):
        run(at_the_paper.model_copy(update={"plan": False}))


def test_the_command_line_prints_the_plan_without_torch_or_ray(tmp_path: Path) -> None:
    _lay_out(tmp_path)
    code = (
        "import sys; from ghost_ray.cli import main\n"
        "try: main(['study', '--config', sys.argv[1], '--plan'])\n"
        "except SystemExit as end: code = end.code\n"
        "print([name for name in ('ray', 'torch') if name in sys.modules], code)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(PAPER)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.stdout.splitlines()[-1] == "[] 0", answer.stderr
    for word in (*NETWORKS, "unknown.ninco", "5,879", "Nothing was run"):
        assert word in answer.stdout


def test_stores_that_are_not_there_are_named(tmp_path: Path) -> None:
    networks = {"alpha": stores_of(tmp_path / "nowhere")}
    with pytest.raises(GateFailed, match=r"alpha: .*nowhere/fit, .* is not there"):
        run(settings(tmp_path, networks, plan=True))


def test_the_papers_file_has_the_sections_of_the_page_about_it() -> None:
    page = (PAPER.parents[1] / "docs" / "reproduce.md").read_text()
    sections = yaml.safe_load(page.split("<!-- sections -->")[1].split("```")[1].removeprefix("yaml"))
    written = yaml.safe_load(PAPER.read_text())
    assert {name: written[name] for name in sections} == sections


def test_the_requests_of_a_folder_of_images_are_those_that_reading_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store_in_environment(monkeypatch) as remote:
        filesystem = remote.filesystem()
        write_folder(tmp_path / "images", per_class=6)
        for file in (tmp_path / "images").rglob("*.*"):
            place = f"{remote.bucket}/images/{file.relative_to(tmp_path / 'images')}"
            with filesystem.open_output_stream(place) as handle:
                handle.write(file.read_bytes())
        data = f"s3://{remote.bucket}/images"
        section = {"data": data}
        networks = {"one": {"model": "support.networks:small"}}
        config = settings(tmp_path, networks, fit=section, known=section, unknown={"u": section}, groups={}, plan=True)
        plan: Any = run(config)
        planned = next(part for part in plan["data"] if part["role"] == "fit")
        remote.seen.clear()
        options = {"data": data, "model": "support.networks:small", "out": str(tmp_path / "store")}
        extract(ExtractConfig.model_validate(options))
        made = [path for _, path in remote.seen if path.count("/") > 2]
        assert planned["images"] == 24
        assert planned["requests"] == len(made) + 1, "and a listing"
