"""YAML as YAML 1.2 has it, and nothing that unfolds, runs or never ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ghost_ray.config import ExtractConfig, build, parse_yaml
from ghost_ray.config.building import CoreLoader
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import InputError

SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


class CoreSchemaDumper(yaml.SafeDumper):
    """PyYAML's dumper quotes the strings that YAML 1.1 would misread; this one those of the core schema (``0E0``)."""

    yaml_implicit_resolvers = CoreLoader.yaml_implicit_resolvers


@given(VALUES)
@example({"0E0": None})
def test_what_was_written_is_read(value: Any) -> None:
    assert parse_yaml(yaml.dump(value, Dumper=CoreSchemaDumper)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:8", "1:8"),
        ("190:20:30.15", "190:20:30.15"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("0123", "0123"),
        ("0x1F", 31),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("2026-01-01", "2026-01-01"),
        ("~", None),
        ("", None),
        ("{<<: {a: 1}, b: 2}", {"a": 1, "b": 2}),
        ("[&a 1, *a]", [1, 1]),
    ],
)
def test_the_core_schema(text: str, value: Any) -> None:
    assert parse_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9) if n else 1}]\n" for n in range(12)),
            "more than 200,000",
        ),
        ("&a [*a]", "more than 64 deep"),
        ("[" * 5000, "more than 64 deep"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("!!timestamp x", "does not fit its tag"),
        ("!!int ''", "does not fit its tag"),
        ("a: 1\n---\nb: 2", "expected a single document"),
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' was given before, in line 1"),
        ("{a: 1, 'a': 2}", "line 1: the key 'a' was given before, in line 1"),
        ("gates:\n  keep: 1\n  keep: 2\n", "line 3: the key 'keep' was given before, in line 2"),
        ("a: b: c", "mapping values are not allowed"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


def test_a_key_overrides_the_same_key_of_a_merged_mapping() -> None:
    assert parse_yaml("base: &b {keep: 1, more: 2}\nmine: {<<: *b, keep: 3}")["mine"] == {"keep": 3, "more": 2}


def test_gates_that_are_given_twice_are_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "refit.yaml"
    path.write_text("registry: r\ngates: {max_accuracy_drop: 0.01}\nkeep: 3\ngates: {}\n")
    with pytest.raises(InputError) as caught:
        build(RefitConfig, {}, str(path))
    assert str(path) in str(caught.value)
    assert "line 4: the key 'gates' was given before, in line 2" in str(caught.value)


@pytest.mark.parametrize(("written", "actors"), [("1:8", "1:8"), ('"1:8"', "1:8"), ("4", "4")])
def test_a_range_of_actors_needs_no_quotes(tmp_path: Path, written: str, actors: str) -> None:
    path = tmp_path / "extract.yaml"
    path.write_text(f"data: images\nmodel: resnet18\nout: store\nactors: {written}\n")
    assert build(ExtractConfig, {}, str(path)).actors == actors
