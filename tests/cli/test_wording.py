"""Python callers read about arguments, users of the command line about options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ghost_ray.cli.commands import COMMANDS
from ghost_ray.cli.wording import describe
from ghost_ray.config import EvaluateConfig, ExtractConfig, FitConfig, ReportConfig
from ghost_ray.errors import GateFailed, InputError

SETTINGS = {name for command in COMMANDS.values() for name in command.settings.model_fields}
PACKAGE = Path(__file__).parents[2] / "ghost_ray"


@pytest.mark.parametrize(
    ("error", "kind", "python", "options"),
    [
        (
            InputError("out", "o", "exists already", "add `overwrite=True` to replace it"),
            FitConfig,
            "out 'o': exists already — add `overwrite=True` to replace it",
            "--out 'o': exists already — add --overwrite to replace it",
        ),
        (InputError("store", "s", "is empty"), FitConfig, "store 's': is empty", "STORE 's': is empty"),
        (
            InputError("overwrite", False, "x", "`overwrite=False`"),
            ReportConfig,
            None,
            "--overwrite 'False': x — --no-overwrite",
        ),
        (
            InputError("methods", "vim", "needs a head", "import with `head=HEAD`, see `ghost-ray import`"),
            EvaluateConfig,
            None,
            "--methods 'vim': needs a head — import with --head HEAD, see `ghost-ray import`",
        ),
        (
            GateFailed("2 images failed, more than `max_failures=0.01` allows"),
            ExtractConfig,
            "2 images failed, more than `max_failures=0.01` allows",
            "2 images failed, more than --max-failures 0.01 allows",
        ),
        (InputError("device", "`data`", "`nothing` else"), ExtractConfig, None, "device '`data`': `nothing` else"),
    ],
)
def test_both_wordings(error: InputError | GateFailed, kind: type, python: str | None, options: str) -> None:
    assert python is None or str(error) == python
    assert describe(error, kind, SETTINGS) == options


def test_inner_rooms_name_no_option() -> None:
    """Options stand only inside whole commands, which begin with ``ghost-ray``, and in help texts."""
    literal = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.parent.name in ("cli", "config") or file.name == "ray_interfaces.py":  # which names Ray's own options
            continue
        for text in literal.findall(file.read_text()):
            outside_commands = re.sub(r"ghost-ray [^`\"]*", "", text)
            if re.search(r"(^|[\s('])--[a-z]", outside_commands):
                found.append(f"{file.relative_to(PACKAGE)}: {text}")
    assert not found
