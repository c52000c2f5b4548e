"""What installed packages add by entry point, and what users name as ``package.module:name``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import toy_package
from support.backbones import refusal
from support.evaluations import make_toy

from ghost_ray import scorers, sources
from ghost_ray.backbone import load_backbone
from ghost_ray.cli import main
from ghost_ray.errors import InputError
from ghost_ray.jobs.evaluate import named_methods
from ghost_ray.plugins import plugins
from ghost_ray.rows import Rows
from ghost_ray.scorers import catalogue as methods
from ghost_ray.sources import image_formats as formats


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody's package in the environment of this process, for a while."""
    monkeypatch.syspath_prepend(str(toy_package.lay_down(tmp_path)))
    monkeypatch.setattr(methods, "_refused", {})
    monkeypatch.setattr(formats, "_refused", {})
    monkeypatch.delitem(sys.modules, "their_package", raising=False)
    methods.register_plugins()
    formats.register_plugins()
    yield
    scorers.unregister("norm")
    sources.unregister("toy")


@pytest.fixture
def rows() -> Rows:
    toy = make_toy()
    embedding, label = toy.known(np.random.default_rng(0), 20)
    logits = toy.logits(embedding)
    return Rows(label, logits.argmax(1), embedding, logits)


def test_a_method_of_a_package(installed: None, rows: Rows) -> None:
    assert scorers.names()[-1] == "norm"
    assert scorers.title_of("norm:power=2") == "Feature norm (power=2)"
    found = scorers.create("norm:power=2").score(rows)
    np.testing.assert_allclose(found, (rows.embedding.astype(np.float64) ** 2).sum(1))


def test_a_format_and_a_network_of_a_package(installed: None) -> None:
    assert [entry.name for entry in sources.formats()][-1] == "toy"
    backbone = load_backbone("their-net", device="cpu")
    assert (backbone.name, backbone.classes) == ("their-net", 4)
    assert backbone.weights_sha256 == load_backbone("support.networks:small", device="cpu").weights_sha256
    assert "nearest: 'their-net'" in refusal("thier-net")


def test_what_cannot_be_loaded_is_said_where_it_is_named(installed: None) -> None:
    with pytest.raises(InputError, match=r"'broken' of the package their-package cannot be used \(AttributeError"):
        named_methods(["broken"])
    assert "two scorers are named 'msp': MSP, Impostor" in scorers.refused_plugins()["msp"]
    assert scorers.scorer_class("msp").__module__ == "ghost_ray.scorers.msp"
    with pytest.raises(InputError, match=r"of the package their-package cannot be used \(ValueError: it is a ABCMeta"):
        sources.open_source("nowhere", "torn")


def test_help_lists_all_of_it(installed: None, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for command in ("evaluate", "extract"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown[command] = " ".join(capsys.readouterr().out.split())
    assert "norm Feature norm, power=1" in shown["evaluate"]
    assert "broken of the package their-package cannot be used (AttributeError" in shown["evaluate"]
    assert "package.module:Class a method of your own" in shown["evaluate"]
    assert "toy toy files: one line of" in shown["extract"]
    assert "their-net of the package their-package" in shown["extract"]


def test_a_network_named_as_one_of_timm_is_refused(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tmp_path / "their_package-1.0.dist-info/entry_points.txt"
    names.write_text(names.read_text().replace("their-net", "resnet18"))
    assert [plugin.name for plugin in plugins("networks")] == ["resnet18"]
    assert "is a network of timm and a network of the package their-package" in refusal("resnet18")


OWN = """
import numpy as np
from ghost_ray.scorers import Scorer


class Norm(Scorer):
    def score_finite(self, batch):
        return np.linalg.norm(batch.embedding, axis=1).astype(float)


class Unfinished(Scorer):
    pass
"""


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_scores.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_scores", raising=False)


def test_a_method_in_a_file_of_ones_own(own_file: None, rows: Rows) -> None:
    scorer = named_methods(["own_scores:Norm"])["own_scores:Norm"]
    assert scorer.name == "own_scores:Norm"
    assert (scorer.score(rows) > 0).all()
    assert scorers.title_of("own_scores:Norm") == "Norm"
    assert scorer.rival


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("no.such.module:Norm", "no.such.module:Norm cannot be imported: ModuleNotFoundError"),
        ("own_scores:Nrom", "own_scores:Nrom cannot be imported: AttributeError"),
        ("own_scores:np", "a module is not a subclass of ghost_ray.scorers.Scorer"),
        ("json:JSONEncoder", "JSONEncoder is not a subclass of ghost_ray.scorers.Scorer"),
        ("own_scores:Unfinished", "Unfinished has no method score_finite"),
        ("own_scores:Norm:k=3", "own_scores:Norm: there is no option 'k'; it has none"),
    ],
)
def test_methods_that_are_none(own_file: None, method: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        named_methods([method])
    assert said in str(caught.value)


def test_reading_results_runs_nobodys_code(own_file: None, tmp_path: Path) -> None:
    (tmp_path / "own_scores.py").write_text("raise SystemExit('it was imported')")
    assert scorers.title_of("own_scores:Norm:power=2") == "Norm (power=2)"
    assert scorers.is_rival("own_scores:Norm", {})
