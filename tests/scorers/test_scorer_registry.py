from __future__ import annotations

import subprocess
import sys

import pytest

from ghost_ray import scorers
from ghost_ray.scorers import Scorer

PUBLISHED = "ghost ghost-gpd ghost-full msp maxlogit energy knn nnguide react scale openmax evm vim mds rmds"


def test_all_methods_are_there():
    assert " ".join(scorers.names()) == PUBLISHED


@pytest.mark.parametrize("name", scorers.names())
def test_every_method_explains_itself(name):
    text = scorers.scorer_class(name).__doc__
    assert "http" in text
    assert any(word in text for word in ("default ", "No options"))


def test_a_taken_name_is_refused():
    class Impostor(Scorer):
        name = "msp"

        def score_finite(self, batch):
            raise AssertionError

    with pytest.raises(ValueError, match="two scorers are named 'msp': MSP"):
        scorers.register(Impostor)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown method 'ghots'; nearest: 'ghost'"):
        scorers.create("ghots")


def test_an_unknown_option_names_the_method():
    with pytest.raises(ValueError, match=r"knn: .*'neighbours'"):
        scorers.create("knn", neighbours=3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("knn", {"k": 0}),
        ("nnguide", {"fraction": 0.0}),
        ("react", {"percentile": 101}),
        ("scale", {"percentile": 100}),
        ("energy", {"temperature": 0.0}),
        ("openmax", {"alpha": 0}),
        ("evm", {"cover": 0.0}),
        ("vim", {"d": 0}),
    ],
)
def test_options_out_of_range_are_refused_at_once(name, options):
    with pytest.raises(ValueError, match=rf"{name}: .*got"):
        scorers.create(name, **options)


def test_importing_the_scorers_is_light():
    code = "import sys, ghost_ray.scorers; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "faiss", "scipy.stats", "ray"} & set(shown.split())
