from __future__ import annotations

import re
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
    assert vars(scorers.scorer_class(name))["title"]
    for option in scorers.options_of(scorers.scorer_class(name)):
        assert option.help, option
        assert f"default {option.default!s}".removesuffix(".0") in text


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
    ("method", "options"),
    [
        ("knn", {"k": 50}),
        ("knn:k=10", {"k": 10}),
        ("openmax:alpha=5:tail=30", {"tail": 30, "alpha": 5}),
        ("react:percentile=95", {"percentile": 95.0}),
        ("vim:d=none", {"d": None}),
        ("vim:d=3", {"d": 3}),
    ],
)
def test_options_stand_in_the_name(method, options):
    scorer = scorers.create(method)
    assert {name: getattr(scorer, name) for name in options} == options
    assert scorer.name == method
    assert scorer.same_as(scorers.create(method.split(":")[0], **options))
    assert scorers.scorer_class(method) is type(scorer)


def test_an_option_in_the_name_goes_before_one_beside_it():
    assert scorers.create("nnguide:seed=3", seed=0, k=7).seed == 3


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("knn:k", "knn: 'k' is not of the form OPTION=VALUE"),
        ("knn:k=", "knn: 'k=' is not of the form"),
        ("knn:k=1/2", "knn: 'k=1/2' is not of the form"),
        ("knn:k=3:k=4", "the option 'k' is given twice"),
        ("knn:k=2.5", "k must be a whole number, got '2.5'"),
        ("vim:d=many", "d must be a whole number or none, got 'many'"),
        ("energy:temperature=nan", "temperature must be a number, got 'nan'"),
        ("energy:temprature=2", "no option 'temprature'; nearest: 'temperature'; options: temperature=1"),
        ("ghost:k=1", "ghost: there is no option 'k'; it has none"),
        ("knm:k=3", "unknown method 'knm'; nearest: 'knn'"),
    ],
)
def test_wrong_options_are_answered_with_the_right_ones(method, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        scorers.create(method)


def test_titles_carry_the_options():
    assert scorers.title_of("nnguide") == "NNGuide"
    assert scorers.title_of("evm:tail=50:cover=0.8") == "EVM (tail=50, cover=0.8)"
    assert scorers.title_of("pytorch-ood:GEN:gamma=0.2") == "GEN (gamma=0.2)"
    assert scorers.title_of("somebody-elses") == "somebody-elses"


def test_variants_of_ghost_are_no_rivals():
    variants = ["ghost", "ghost-gpd", "ghost-full"]
    assert [name for name in scorers.names() if not scorers.create(name).rival] == variants


def test_a_result_says_whether_its_method_is_a_rival():
    assert scorers.is_rival("ghost", {"rival": True})
    assert not scorers.is_rival("msp", {"rival": False})
    # 0.1 wrote nothing.
    assert [name for name in scorers.names() if not scorers.is_rival(name, {})] == ["ghost", "ghost-gpd", "ghost-full"]
    assert scorers.is_rival("knn:k=3", {})


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
    assert not {"torch", "faiss", "scipy", "numba", "ray"} & set(shown.split())
