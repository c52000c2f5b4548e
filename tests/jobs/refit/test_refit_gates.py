"""Gates, drift and log lines of a refit: functions of figures, without a Ray."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refits import NAMES

from ghost_ray.config.refit_settings import GatesSection
from ghost_ray.files.manifest import Network, now
from ghost_ray.gaussians import Gaussians
from ghost_ray.jobs.refit.drift import mean_shift
from ghost_ray.jobs.refit.gates import evaluate_gates
from ghost_ray.jobs.refit.log import Log
from ghost_ray.model import Model, ModelManifest

SUMMARY = {
    "accuracy": 0.9,
    "accuracy_on": "known",
    "rejected_fraction": 0.02,
    "auoscr": {"a": 0.8, "b": 0.7},
    "classes_without_gaussian": 0,
}
LIMITS = GatesSection(
    max_rejected_fraction=0.05, max_accuracy_drop=0.01, max_auoscr_drop=0.02, max_classes_without_gaussian=1
)


def refused(new: dict[str, Any], old: dict[str, Any] | None = SUMMARY, limits: GatesSection = LIMITS) -> list[str]:
    return [gate.name for gate in evaluate_gates(limits, {**SUMMARY, **new}, old) if not gate.passed]


def test_gates() -> None:
    assert refused({}) == []
    assert refused({"rejected_fraction": 0.05}) == []
    assert refused({"rejected_fraction": 0.0501}) == ["max_rejected_fraction"]
    assert refused({"rejected_fraction": None}) == ["max_rejected_fraction"]
    assert refused({"accuracy": 0.89}) == []
    assert refused({"accuracy": 0.88}) == ["max_accuracy_drop"]
    assert refused({"accuracy": 0.1}, old=None) == []
    assert refused({"accuracy": 0.1, "accuracy_on": "fit"}) == []
    assert refused({"auoscr": {"a": 0.81, "b": 0.67, "c": 0.0}}) == ["max_auoscr_drop"]
    assert refused({"auoscr": {}}) == []
    assert refused({"classes_without_gaussian": 2}, old=None) == ["max_classes_without_gaussian"]
    assert refused({"threshold_problem": "cannot be kept"}, old=None) == ["accept_known"]
    floors = GatesSection(min_accuracy=0.9, min_auoscr=0.75)
    assert refused({"auoscr": {"a": 0.75}}, old=None, limits=floors) == []
    assert refused({"accuracy": 0.8999, "auoscr": {}}, old=None, limits=floors) == ["min_accuracy"]
    assert refused({"accuracy": None, "auoscr": {}}, old=None, limits=floors) == ["min_accuracy"]
    assert refused({}, old=None, limits=floors) == ["min_auoscr"], "on b"
    off = GatesSection.model_validate(dict.fromkeys(GatesSection.model_fields))
    assert evaluate_gates(off, {**SUMMARY, "rejected_fraction": None}, SUMMARY) == []


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_drop_within_the_limit_passes_and_beyond_it_does_not(old: float, new: float, limit: float) -> None:
    limits = GatesSection(
        max_rejected_fraction=None,
        max_accuracy_drop=limit,
        max_auoscr_drop=None,
        max_classes_without_gaussian=None,
    )
    (gate,) = evaluate_gates(limits, {**SUMMARY, "accuracy": new}, {**SUMMARY, "accuracy": old})
    assert gate.passed == (old - new <= limit + 1e-12)


def model_of(mean: np.ndarray, std: np.ndarray, count: np.ndarray) -> Model:
    network = Network(name="toy", classes=len(mean), dimensions=mean.shape[1])
    manifest = ModelManifest(created=now(), network=network, rows=int(count.sum()), class_names=[*NAMES[: len(mean)]])
    return Model("", manifest, Gaussians(mean.astype(np.float32), std.astype(np.float32), count))


def test_mean_shift_is_in_units_of_the_old_spread(rng: np.random.Generator) -> None:
    mean, count = rng.normal(size=(3, 5)), np.array([9, 9, 1])
    std = np.full((3, 5), 0.5)
    std[0, 4] = 0  # constant before: no unit to measure in
    moved = mean.copy()
    moved[0] += 1.0
    moved[1, 0] += 5 * 0.25
    shift = mean_shift(model_of(mean, std, count), model_of(moved, std, count))
    assert shift is not None
    found = {entry["name"]: entry["shift"] for entry in shift["classes"]}
    assert found == {"ant": pytest.approx(2.0, rel=1e-5), "bee": pytest.approx(0.5, rel=1e-5)}
    assert shift["largest"] == found["ant"]
    assert mean_shift(model_of(mean, std, count), model_of(mean[:, :4], std[:, :4], count)) is None


def test_log_lines_can_be_taken_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    submitted = json.dumps({"metadata": {"job_submission_id": "raysubmit_1"}})
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", submitted)
    log = Log()
    log.version = "0001-000000000000"
    log.line("refused", reason='a "quoted"\nreason = long')
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    name, *pairs = shlex.split(line)
    facts = dict(pair.split("=", 1) for pair in pairs)
    assert name == "refit"
    assert (facts["job"], facts["version"], facts["event"]) == ("raysubmit_1", "0001-000000000000", "refused")
    assert facts["reason"] == 'a "quoted" reason = long'
