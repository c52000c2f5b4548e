"""What the evaluate job refuses: exit 2, one line, what to do, and nothing left behind."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.evaluations import make_toy, settings, write_stores
from support.stores import Toy, write_store

from ghost_ray import scorers
from ghost_ray.errors import InputError
from ghost_ray.jobs.evaluate import run
from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers import Scorer
from ghost_ray.store import hash_keys


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores that can be evaluated, and stores that must be refused."""
    place, toy, rng = tmp_path_factory.mktemp("stores"), make_toy(), np.random.default_rng(3)
    write_stores(place, toy)
    embedding, label = toy.known(rng, 60)
    write_store(place / "empty", embedding[:0], label[:0], toy)
    write_store(place / "other", embedding, label, toy, network={"name": "resnet"})
    write_store(place / "no-head", embedding, label, toy, stored_logits=True)
    write_store(place / "no-head-unknown", embedding, None, toy, stored_logits=True)
    small = Toy.make(rng, classes=6, dimensions=7)
    write_store(place / "small", small.unknown(rng, 30), None, small)
    more = Toy.make(rng, classes=9, dimensions=12)
    write_store(place / "more", *more.known(rng, 90), more)
    embedding[11, 3] = np.nan
    write_store(place / "nan", embedding, None, toy, pred=label)
    return place


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fit": "empty"}, r"^fit .*empty.*no rows"),
        ({"known": "empty"}, r"^known .*no rows"),
        ({"unknown": {"x": "empty"}}, r"^unknown .*no rows"),
        ({"unknown": {"x": "small"}}, r"D=7.*D=12"),
        ({"known": "more"}, r"K=9.*K=6"),
        ({"fit": "more"}, r"K=6.*K=9"),
        ({"known": "other"}, r"resnet.*toy"),
        ({"known": "near"}, r"^known .*without a label"),
        ({"fit": "near"}, r"^fit .*no labelled rows"),
        ({"unknown": {"x": "known"}}, r"no unknowns.*`unknown`"),
        ({"unknown": {"known": "near"}}, r"name of the known set"),
        ({"unknown": {"x": "nowhere"}}, r"does not exist"),
        ({"methods": ["gost"]}, r"unknown method 'gost'.*nearest: 'ghost'"),
        ({"methods": ["msp", "msp"]}, r"twice"),
        ({"methods": ["knn:k=5", "knn", "knn:k=50"]}, r"twice: knn is knn:k=50"),
        (
            {"methods": ["knn:neighbours=5"]},
            r"^methods 'knn:neighbours=5': knn: .*no option 'neighbours'; options: k=50",
        ),
        ({"methods": ["react:percentil=95"]}, r"nearest: 'percentile'"),
        ({"methods": ["knn:k=many"]}, r"k must be a whole number, got 'many'"),
        ({"methods": ["knn:k=0"]}, r"k must be 1 to 10,000, got 0"),
        ({"methods": ["all", "msp"]}, r"stands alone"),
        ({"group": {"g": "near,fra"}}, r"no `unknown` 'fra'.*nearest: 'far'"),
        ({"group": {"near": "near,far"}}, r"has this name"),
        (
            {
                "fit": "no-head",
                "known": "no-head",
                "unknown": {"x": "no-head-unknown"},
                "methods": ["ghost", "react"],
            },
            r"^methods 'react'.*head.*`head=HEAD.safetensors`, or leave out react",
        ),
    ],
)
def test_wrong_input_is_refused_before_ray_starts(
    wrong: Path, tmp_path: Path, options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr("ghost_ray.jobs.evaluate.ray_session", never)
    at: dict[str, Any] = {k: str(wrong / v) if k in ("fit", "known") else v for k, v in options.items()}
    if "unknown" in options:
        at["unknown"] = {name: str(wrong / store) for name, store in options["unknown"].items()}
    with pytest.raises(InputError, match=problem) as refused:
        run(settings(wrong, tmp_path / "e", **at))
    assert refused.value.exit_code == 2
    assert os.listdir(tmp_path) == []


def test_all_without_a_head_leaves_out_what_needs_it(wrong: Path, tmp_path: Path, local_ray: None) -> None:
    from ghost_ray.jobs.evaluate.evaluate_plan import make_plan

    stores = {"fit": "no-head", "known": "no-head"}
    at: dict[str, Any] = {k: str(wrong / v) for k, v in stores.items()}
    plan = make_plan(
        settings(wrong, tmp_path / "e", unknown={"x": str(wrong / "no-head-unknown")}, methods="all", **at)
    )
    left_out = [name for name in scorers.names() if scorers.scorer_class(name).needs_head]
    assert left_out
    assert set(plan.scorers) == set(scorers.names()) - set(left_out)
    assert len(plan.notes) == len(left_out)


class NaNForOne(Scorer):
    """Loses its way on one row of the unknown set."""

    name = "nan-for-one"

    def score_finite(self, batch: Rows) -> Floats:
        return np.where(batch.row_id == hash_keys(pa.array(["row-000017"]))[0], np.nan, batch.top_logit())


def test_a_method_that_gives_nan_is_named_with_the_row(
    wrong: Path, tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(scorers.catalogue._scorers, NaNForOne.name, NaNForOne)
    with pytest.raises(InputError, match=r"nan-for-one.*NaN for 1 rows of .*'row-000017'.*leave out nan-for-one") as no:
        run(settings(wrong, tmp_path / "e", methods=["msp", "nan-for-one"]))
    assert no.value.exit_code == 2
    assert os.listdir(tmp_path) == []


def test_nan_in_a_store_is_named(wrong: Path, tmp_path: Path, local_ray: None) -> None:
    with pytest.raises(InputError, match="row 11 holds a NaN"):
        run(settings(wrong, tmp_path / "e", unknown={"x": str(wrong / "nan")}))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--fit": "empty"}, r"--fit .*empty.*no rows.*extract or import"),
        ({"--known": "more"}, r"--known .*K=9.*K=6.*use results of one network"),
        ({"--unknown": "x=small"}, r"--unknown .*D=7.*D=12.*use results of one network"),
        ({"--unknown": "x=known"}, r"--unknown .*no unknowns.*extract or import it with --unknown"),
        ({"--unknown": None}, r"--unknown.*is needed and was not given.*--help"),
        ({"--unknown": "x=nan"}, r"/nan.*row 11 holds a NaN.*extract the store again"),
        (
            {"--fit": "no-head", "--known": "no-head", "--unknown": "x=no-head-unknown", "--methods": "ghost,scale"},
            r"--methods 'scale'.*head.*import the stores with --head HEAD.safetensors, or leave out scale",
        ),
    ],
)
def test_command_line_answers_in_one_line_with_what_to_do(
    wrong: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    local_ray: None,
    options: dict[str, Any],
    said: str,
) -> None:
    from ghost_ray.cli import main

    given = {"--fit": "fit", "--known": "known", "--unknown": "x=near", "--methods": "ghost,msp"} | options
    words = ["evaluate", "--out", str(tmp_path / "e"), "--methods", given["--methods"]]
    for option in ("--fit", "--known", "--unknown"):
        if given[option] is not None:
            *name, store = given[option].split("=")
            words += [option, "=".join([*name, str(wrong / store)])]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    lines = [
        line for line in capsys.readouterr().err.splitlines() if "rows" not in line or line.startswith("ghost-ray")
    ]
    assert len(lines) == 1
    assert re.search(said, lines[0]), lines[0]
    assert os.listdir(tmp_path) == []
