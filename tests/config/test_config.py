"""Settings: the same from YAML and options, and a wrong one is told with what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ghost_ray.config import AuditConfig, EvaluateConfig, ExtractConfig, JobConfig, ScoreConfig, build
from ghost_ray.errors import InputError


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text("store: S\nout: O\nalpha: 0.01\nmax-n: 100\n")
    config = build(AuditConfig, {"alpha": "0.1"}, str(file))
    assert (config.store, config.out, config.alpha, config.max_n) == ("S", "O", 0.1, 100)


def test_settings_are_frozen() -> None:
    config = build(AuditConfig, {"store": "S", "out": "O"})
    with pytest.raises(ValidationError):
        config.alpha = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(("written", "seconds"), [("30m", 1800.0), ("2h", 7200.0), (90, 90.0), ("0", 0.0)])
def test_how_long_to_wait_for_nodes(tmp_path: Path, written: str | int, seconds: float) -> None:
    assert build(AuditConfig, {"store": "S", "out": "O"}).wait_for_nodes == 1800.0
    file = tmp_path / "audit.yaml"
    file.write_text(f"store: S\nout: O\nwait-for-nodes: {written}\n")
    from_file = build(AuditConfig, {}, str(file))
    assert from_file == build(AuditConfig, {"store": "S", "out": "O", "wait_for_nodes": str(written)})
    assert from_file.wait_for_nodes == seconds


def test_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text("store: S\nout: O\nalhpa: 0.01\n")
    with pytest.raises(InputError, match=r"unknown key 'alhpa'.*nearest: 'alpha'"):
        build(AuditConfig, {}, str(file))


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "!!python/object/apply:os.system ['true']", "1: 2", "\xff"])
def test_files_that_are_no_settings(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"^config "):
        build(AuditConfig, {}, str(file))


@pytest.mark.parametrize(
    ("kind", "options", "field", "told"),
    [
        (AuditConfig, {"out": "O"}, "store", "is needed"),
        (AuditConfig, {"store": "S", "out": "O", "alpha": "2"}, "alpha", "less than 1"),
        (AuditConfig, {"store": "S", "out": "O", "alpha": "nan"}, "alpha", "finite"),
        (AuditConfig, {"store": "S", "out": "O", "family": "some"}, "family", "'all' or 'class'"),
        (AuditConfig, {"store": "S", "out": "O", "max_n": "5001"}, "max_n", "5000"),
        (EvaluateConfig, {"fit": "a", "known": "b", "out": "c", "unknown": ["x"]}, "unknown", "NAME=VALUE"),
        (EvaluateConfig, {"fit": "a", "known": "b", "out": "c", "unknown": ["x=1", "x=2"]}, "unknown", "twice"),
        (EvaluateConfig, {"fit": "a", "known": "b", "out": "c", "unknown": ["../x=1"]}, "unknown", "plain name"),
        (ExtractConfig, {"data": "a", "model": "m", "out": "c", "actors": "4:2"}, "actors", "MIN:MAX"),
        (AuditConfig, {"store": "S", "out": "O", "wait_for_nodes": "-1"}, "wait_for_nodes", "is not a time such as"),
        (ScoreConfig, {"gaussians": "m", "out": "c"}, "options", "`store` and `data`"),
    ],
)
def test_what_is_wrong_is_named(kind: type[JobConfig], options: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        build(kind, options)
    assert caught.value.field == field
    assert told in caught.value.problem
    assert "\n" not in str(caught.value)


def test_pairs_and_words_come_from_both_worlds(tmp_path: Path) -> None:
    base = {"fit": "a", "known": "b", "out": "c"}
    config = build(EvaluateConfig, {**base, "unknown": ("x=s3://b/1=2", "y=2"), "methods": ("ghost,msp", "energy")})
    assert config.unknown == {"x": "s3://b/1=2", "y": "2"}
    assert config.methods == ("ghost", "msp", "energy")
    file = tmp_path / "e.yaml"
    file.write_text("fit: a\nknown: b\nout: c\nunknown: {x: s3://b/1=2, y: '2'}\nmethods: [ghost, msp, energy]\n")
    assert build(EvaluateConfig, {}, str(file)) == config
