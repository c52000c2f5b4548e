"""Whatever the code can write, it reads back equal: manifests, pointers, attempts, gates and summaries."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.registries import make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.config.refit_settings import GatesSection, PromoteConfig, RegistryConfig, StatusConfig
from ghost_ray.files.digests import Digest
from ghost_ray.files.json_files import layout, parse_json, sealed, unsealed
from ghost_ray.files.manifest import Data, Manifest, Network, now
from ghost_ray.jobs.audit.audit_job import AuditManifest
from ghost_ray.jobs.evaluate import EvaluationManifest
from ghost_ray.jobs.refit.gates import evaluate_gates
from ghost_ray.model import ModelManifest
from ghost_ray.registry import VersionManifest, looking, operations
from ghost_ray.registry.attempts import _RECORD, Outcome
from ghost_ray.registry.pointer import Held, Move, Pointer
from ghost_ray.registry.status import status
from ghost_ray.store import StoreManifest

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0, 1)
DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64)
VERSION = st.from_regex(r"[0-9]{4,12}-[0-9a-f]{12}", fullmatch=True)
MOMENT = st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())
NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,20}", fullmatch=True)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


MOVES = st.builds(
    Move,
    version=VERSION,
    previous=maybe(VERSION),
    at=MOMENT,
    by=st.sampled_from(["refit", "promote", "rollback"]),
    user=maybe(TEXT),
    host=maybe(TEXT),
    job=maybe(TEXT),
    reason=maybe(TEXT),
)
POINTERS = st.builds(
    lambda history, held, labels, removing: Pointer(
        version=history[-1].version, history=history, held=held, labels=labels, removing=removing
    ),
    st.lists(MOVES, min_size=1, max_size=5),
    st.lists(st.builds(Held, version=VERSION, fingerprint=DIGEST, at=MOMENT), max_size=3),
    st.dictionaries(NAME, VERSION, max_size=3),
    st.lists(VERSION, max_size=3),
)
SUMMARIES = st.fixed_dictionaries(
    {
        "accuracy": maybe(SHARE),
        "accuracy_on": st.sampled_from(["fit", "known"]),
        "rejected_fraction": maybe(SHARE),
        "auoscr": st.dictionaries(NAME, SHARE, max_size=3),
        "classes_without_gaussian": st.integers(0, 1000),
        "threshold": maybe(NUMBER),
        "rows_used": st.integers(0),
        "failures": st.dictionaries(NAME, st.integers(0), max_size=3),
    },
    optional={"threshold_problem": TEXT},
)
LIMITS = st.builds(
    GatesSection,
    max_rejected_fraction=maybe(SHARE),
    max_accuracy_drop=maybe(SHARE),
    max_auoscr_drop=maybe(SHARE),
    max_classes_without_gaussian=maybe(st.integers(0, 1000)),
)
COMMON = {
    "created": MOMENT,
    "network": st.builds(
        Network,
        name=TEXT,
        weights_sha256=maybe(DIGEST),
        classes=st.integers(1, 1000),
        dimensions=st.integers(1, 1000),
        preprocessing=st.dictionaries(TEXT, maybe(NUMBER | TEXT | st.booleans()), max_size=3),
        restricted_to=maybe(st.lists(st.integers(0, 1000), max_size=3)),
    ),
    "data": st.lists(st.builds(Data, uri=TEXT, kind=TEXT, fingerprint=maybe(DIGEST)), max_size=2),
    "rows": st.integers(0),
    "config": st.dictionaries(TEXT, maybe(NUMBER | TEXT), max_size=3),
    "versions": st.dictionaries(NAME, TEXT, max_size=3),
    "notes": st.lists(TEXT, max_size=2),
    "digests": maybe(st.dictionaries(TEXT, st.builds(Digest, size=st.integers(0), sha256=DIGEST), max_size=3)),
}


def _model_manifest(names: list[str], **common: Any) -> ModelManifest:
    network = common.pop("network").model_copy(update={"classes": len(names)})
    return ModelManifest(class_names=names, network=network, **common)


MANIFESTS = st.one_of(
    st.builds(StoreManifest, failures=st.integers(0), seconds=st.dictionaries(NAME, NUMBER, max_size=2), **COMMON),
    st.builds(ModelManifest, missing_classes=st.integers(0), **COMMON),
    st.builds(_model_manifest, st.lists(TEXT, min_size=1, max_size=3), missing_classes=st.integers(0), **COMMON),
    st.builds(AuditManifest, tests=st.integers(0), rejected_fraction=SHARE, **COMMON),
    st.builds(EvaluationManifest, methods=st.lists(NAME), sets=st.dictionaries(NAME, st.integers(0)), **COMMON),
)


@given(MANIFESTS)
def test_manifests(manifest: Manifest) -> None:
    assert type(manifest).model_validate(unsealed(sealed(manifest.model_dump(mode="json")))) == manifest


@given(LIMITS, SUMMARIES, maybe(SUMMARIES), st.fixed_dictionaries(COMMON))
def test_versions_with_their_gates_and_figures(limits: GatesSection, new: Any, old: Any, common: Any) -> None:
    gates = [gate.answered() for gate in evaluate_gates(limits, new, old)]
    made = VersionManifest(**common, version="0001-000000000000", fingerprint="f", summary=new, gates=gates)
    assert VersionManifest.model_validate(unsealed(sealed(made.model_dump(mode="json")))) == made


@given(POINTERS)
def test_pointers(pointer: Pointer) -> None:
    assert Pointer.model_validate(unsealed(sealed(pointer.model_dump(mode="json")))) == pointer


@settings(max_examples=30)
@given(st.sampled_from(Outcome.__args__), maybe(TEXT), maybe(VERSION))
def test_attempts(outcome: Any, reason: str | None, version: str | None) -> None:
    with tempfile.TemporaryDirectory() as root:
        attempt = registry.Attempt(root)
        attempt.end(outcome, reason=reason, version=version)
        (file,) = Path(root, "attempts").iterdir()
        written = parse_json(file.read_bytes())
        assert _RECORD.validate_python(written) == written
        assert layout(written) == file.read_bytes()
        (read,) = registry.last_attempts(root, 5, running={})
        assert (read.get("reason"), read.get("version"), read["outcome"]) == (reason, version, outcome)


def test_a_version_refused_without_a_figure_is_listed_shown_and_promoted(tmp_path: Path) -> None:
    """The gates that could not be measured: no threshold keeps the share asked for, no normality test was made."""
    root = str(tmp_path)
    summary: Any = {"rejected_fraction": None, "threshold": None, "threshold_problem": "cannot be kept"}
    full: Any = {"classes_without_gaussian": 0, **summary}
    gates = [gate.answered() for gate in evaluate_gates(GatesSection.model_validate({}), full, None)]
    assert [gate["value"] for gate in gates if not gate["passed"]] == [None, None]
    make_version(root, "a", gates, **summary)
    listed = looking.list_versions(RegistryConfig(root=root))["versions"]
    assert listed[0]["refused_by"] == ["max_rejected_fraction", "accept_known"]
    operations.promote(PromoteConfig(root=root, version="1"))


# As version 0.1 wrote them: no seal, no digests, nobody's name, another set of inputs.
POINTER_0_1 = {
    "format": "ghost_ray",
    "format_version": 1,
    "kind": "current",
    "version": "0001-ca978112ca1b",
    "history": [
        {"version": "0001-ca978112ca1b", "previous": None, "at": "2026-01-05T02:17:09+00:00", "by": "refit"},
    ],
    "held": [],
}


def test_a_registry_of_0_1_is_read_and_moved_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    version = make_version(root, "a")
    assert version == POINTER_0_1["version"]
    for file in (tmp_path / "versions" / version).rglob("manifest.json"):
        content = json.loads(file.read_bytes())
        del content["seal"], content["digests"]
        if content["kind"] == "version":
            content["inputs"] = {"weights": "0" * 64, "software": "1" * 64}
        file.write_text(json.dumps(content, indent=2))
    (tmp_path / "current.json").write_text(json.dumps(POINTER_0_1, indent=2))
    (tmp_path / "attempts").mkdir()
    old_attempt = {"started": now(), "outcome": "promoted", "job": "raysubmit_1", "ended": now(), "version": version}
    (tmp_path / "attempts" / "20260105T021709.000000Z-abcdef.json").write_text(json.dumps(old_attempt))
    assert ghost_ray.load(root).threshold == 1.0
    assert looking.list_versions(RegistryConfig(root=root))["versions"][0]["damage"] is None
    shown = status(StatusConfig(root=root))
    assert (shown["problems"], shown["attempts"][0]["outcome"]) == ([], "promoted")
    second = make_version(root, "b")
    operations.promote(PromoteConfig(root=root, version="2"))
    pointer = registry.current(root)
    assert pointer is not None
    assert [(move.version, move.user is None) for move in pointer.history] == [(version, True), (second, False)]
