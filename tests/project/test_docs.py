"""The documentation's commands are run as they stand, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"\*\(runs\s+as\s+a\s+test\)\*:?\s*```(bash|python)\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_user_guide_can_be_followed_from_the_top(tmp_path: Path) -> None:
    text = (ROOT / "docs/user-guide.md").read_text()
    blocks = BLOCK.findall(text)
    promised = len(re.findall(r"\*\(runs\s+as\s+a\s+test\)\*", text)) - 1  # one stands in the introduction
    assert len(blocks) == promised >= 8
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    for language, code in blocks:
        words = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        answer = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert answer.returncode == 0, f"{code}\n{answer.stdout}\n{answer.stderr}"
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "scores.parquet").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        name, _, heading = target.partition("#")
        place = page.parent / name if name else page
        assert place.exists(), f"{page.name}: {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
            assert heading in slugs, f"{page.name}: {target}"


def test_every_figure_names_a_command_that_exists() -> None:
    text = (ROOT / "docs/figures.md").read_text()
    named = set(re.findall(r"python ((?:benchmarks|docs)/\S+\.py)", text))
    assert all((ROOT / script).exists() for script in named), named
    benchmarks = {f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.py") if _is_run(path)}
    assert benchmarks <= named, "every benchmark has its line"
    for file, test in re.findall(r"pytest -m slow (\S+) -k (\w+)", text):
        assert test in (ROOT / file).read_text()


def _is_run(path: Path) -> bool:
    return "__main__" in path.read_text()


def test_ci_runs_the_readmes_test_command() -> None:
    marked = (ROOT / "README.md").read_text().split("<!-- test command -->")[1].split("```")[1]
    for word in ("pip install", "ruff check", "mypy", "lint-imports", "pytest"):
        assert word in marked
    assert "<!-- test command -->" in (ROOT / ".ci/run").read_text()


def test_every_command_is_in_the_readme() -> None:
    from ghost_ray.cli.commands import COMMANDS

    text = (ROOT / "README.md").read_text()
    for command in COMMANDS:
        assert f"`{command.split()[0]}" in text, command


def test_the_table_of_metrics_says_what_their_entries_say() -> None:
    from ghost_ray import metrics

    text = (ROOT / "docs/methods.md").read_text().split("## Metrics")[1]
    entries = [f"| `{m.field}` | {m.title} | {m.arrow} | {m.meaning} |" for m in metrics.registered()]
    assert re.findall(r"^\| `.*\|$", text, re.MULTILINE) == entries


def test_the_table_of_formats_says_what_their_entries_say() -> None:
    from ghost_ray.sources import formats

    table = (ROOT / "docs/user-guide.md").read_text().split("| format | images |")[1].split("\n\n")[0]
    assert table.splitlines()[2:] == [f"| `{entry.name}` | {entry.text} |" for entry in formats()]


def test_the_tables_of_methods_say_what_the_classes_say() -> None:
    from ghost_ray import scorers

    text = (ROOT / "docs/methods.md").read_text().split("## Metrics")[0]
    rows = {
        name: (title, options)
        for name, title, options in re.findall(r"^\| `(.+?)` \| (.*?) \| .* \| (.*) \|$", text, re.M)
    }
    assert list(rows) == [name for name in scorers.names() if name != "ghost"]
    for name, (title, options) in rows.items():
        assert title == scorers.title_of(name)
        assert re.findall(r"`([^`]+)`", options) == [str(o) for o in scorers.options_of(scorers.scorer_class(name))]
