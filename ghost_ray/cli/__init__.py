"""The command line: parse, validate, call one function, print.

Torch and Ray are imported by the jobs when they run, never here: help and wrong options answer at once.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from ghost_ray import __version__
from ghost_ray.cli.catalogues import listings
from ghost_ray.cli.commands import COMMANDS, GROUPS, Command
from ghost_ray.cli.options import given, parameters, shared_parameters
from ghost_ray.cli.wording import describe
from ghost_ray.config import build
from ghost_ray.errors import GateFailed, GhostRayError, InputError, nearest, one_line, redact, redact_values
from ghost_ray.progress import quietly

_INTERRUPTED = 130
_TERMINATED = 143
_COMPLETION = "_GHOST_RAY_COMPLETE"  # set by a shell that asks for completions, which end with SystemExit
_SETTINGS = {name for command in COMMANDS.values() for name in command.settings.model_fields}


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use, not alphabetical."""
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            close = nearest(args[0], self.commands)
            raise click.UsageError(f"there is no command {args[0]!r}; {close or 'see ghost-ray --help'}", ctx)
        return super().resolve_command(ctx, args)


class _JobCommand(click.Command):
    """A command with its example after the options."""

    def __init__(self, name: str, command: Command) -> None:
        self._full_name, self._command = name, command
        super().__init__(
            name.split()[-1],
            params=[*parameters(command.settings), *shared_parameters()],
            callback=self._call,
            short_help=command.summary,
            help=f"{command.summary}\n\n{command.text}",
            epilog=f"Example:\n\n\b\n  {command.example}",
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, followed by the values that catalogues allow for them."""
        super().format_options(ctx, formatter)
        for title, rows in listings(self._command.settings):
            with formatter.section(title):
                formatter.write_dl(rows)

    def _call(self, config_file: str | None, as_json: bool, quiet: bool, **options: Any) -> None:
        # With --json the answer of a scheduled command is all it prints: it holds the result as well.
        shows = not (as_json and self._command.answer)
        try:
            with quietly() if quiet else contextlib.nullcontext():
                result = self._run(config_file, options)
            if shows:
                print_result(self._full_name, result, as_json)
            self._end_with_answer(result, 0)
        except GhostRayError as error:
            if isinstance(error, GateFailed) and error.result is not None and shows:
                print_result(self._full_name, error.result, as_json)
            self._end_with_answer(error, error.exit_code)
            raise _Told(describe(error, self._command.settings, _SETTINGS), error.exit_code) from None
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self._end_with_answer(error, _exit_code(error))
            raise

    def _run(self, config_file: str | None, options: dict[str, Any]) -> Any:
        try:
            config = build(self._command.settings, given(options), config_file)
        except InputError as error:
            raise InputError(error.field, error.value, error.problem, error.hint or "see --help") from None
        return _named(self._command.run)(config)

    def _end_with_answer(self, ended: object, exit_code: int) -> None:
        if self._command.answer:
            answer = _named(self._command.answer)(ended, exit_code)
            click.echo(_json(answer))


def _named(place: str) -> Any:
    """What ``module:function`` names."""
    module, function = place.split(":")
    return getattr(importlib.import_module(module), function)


def _exit_code(error: BaseException) -> int:
    """The exit code after an error that is not ours."""
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    return _TERMINATED if isinstance(error, SystemExit) else 1


class _Told(Exception):
    """The error message in terms of the command line."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def print_result(command: str, result: Mapping[str, object], as_json: bool) -> None:
    """Print a command's result: for programs as JSON, for people as text."""
    if as_json:
        click.echo(_json(result, indent=2))
    else:
        from ghost_ray.cli.show import render

        render(command, redact_values(result))


def _json(value: Any, indent: int | None = None) -> str:
    """JSON for programs, in which nothing is left that a terminal would obey."""
    text = json.dumps(redact_values(value), indent=indent, allow_nan=False, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _make_group() -> click.Group:
    group = _Group(
        "ghost-ray",
        help="GHOST open-set recognition at cluster scale.\n\nTurns a pre-trained image classifier into an open-set "
        "recogniser without training: extract → fit → score, with a normality audit, an evaluation against rivals "
        "and scheduled refits.",
        epilog="Example:\n\n\b\n  ghost-ray demo",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    click.version_option(__version__, prog_name="ghost-ray")(group)
    for name, command in COMMANDS.items():
        _subgroup(group, name.split()[:-1]).add_command(_JobCommand(name, command))
    return group


def _subgroup(group: click.Group, words: list[str]) -> click.Group:
    for word in words:
        inner = group.commands.get(word)
        if not isinstance(inner, click.Group):
            inner = _Group(word, help=GROUPS[word], short_help=GROUPS[word], context_settings=group.context_settings)
            group.add_command(inner)
        group = inner
    return group


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 a gate said no or the job failed, 2 the input is wrong."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without → or σ is no reason to fail
    if hasattr(signal, "SIGTERM"):
        signal.signal(signal.SIGTERM, _terminate)
    try:
        _make_group().main(words, prog_name="ghost-ray", standalone_mode=False)
        code = 0
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        code = _fail(words, error.format_message(), 2)
    except _Told as error:
        code = _fail(words, str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _fail(words, "interrupted; no partial result was published", _INTERRUPTED)
    except SystemExit:
        code = 0 if _COMPLETION in os.environ else _TERMINATED
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    except Exception as error:
        if os.environ.get("GHOST_RAY_DEBUG"):
            raise
        code = _fail(words, _describe(error), 1)
    sys.stdout.flush()
    if code in (_INTERRUPTED, _TERMINATED):
        _leave_at_once(code)
    raise SystemExit(code)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):  # a full disk, a store that does not answer
        return f"{one_line(error)} — no partial result was published; fix this, then run the same command again"
    if isinstance(error, MemoryError):
        return f"not enough memory ({one_line(error)}) — no partial result was published; use a machine with more"
    return f"{type(error).__name__}: {one_line(error)} (unexpected; GHOST_RAY_DEBUG=1 shows where)"


def _leave_at_once(code: int) -> NoReturn:
    """End the process and what it started.

    Libraries take seconds to shut down, and a KeyboardInterrupt inside code from a string makes Python die of the
    signal, whatever the exit code.
    """
    from ghost_ray.cluster import kill_descendants

    kill_descendants()
    sys.stderr.flush()
    os._exit(code)


def _terminate(number: int, frame: FrameType | None) -> None:
    # Unwinds like Ctrl-C, so that a stopped cluster job cleans up.
    raise SystemExit(_TERMINATED)


def _fail(words: list[str], message: str, code: int) -> int:
    command = next((word for word in words if not word.startswith("-")), "")
    click.echo(f"{' '.join(['ghost-ray', command]).strip()}: {one_line(redact(message), 1000)}", err=True)
    return code
