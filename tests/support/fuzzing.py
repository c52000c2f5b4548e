"""Broken and hostile variants of valid input, and a runner that watches what reading them costs.

A run is one process, so that its memory is its own; every input follows from the seed and its number alone:
``PYTHONPATH=tests python -m support.fuzzing store --first 1234 --count 1`` makes a single one again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ghost_ray.errors import InputError

Reading = Callable[[], object]
# Writes one variant of its input and gives the call that reads it.
Variants = Callable[[random.Random], Reading]

LIMIT_SECONDS = 10.0  # of CPU time for one input, whatever else the machine does
_SAFETY_BYTES = 32 << 30  # of address space: a runaway process ends before it affects the machine

NUMBERS = (0, 1, -1, 7, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**300)
FRACTIONS = (0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "~",
    "a\nb",
    "a\0b",
    "a\r\n b",
    "\ud800",
    "\u202e\u2028",
    "x" * 2000,
    "٣",
    "🙂",
    "NaN",
    "9" * 5000,
    "-",
    "s3://key:secret@host/x?scheme=x",
    "file:///etc/passwd",
    "{}",
    "%s",
    "1:8",
    "[/bold]",
    "\x1b[2J",
)


def mutated_bytes(data: bytes, rng: random.Random, times: int = 8) -> bytes:
    """``data`` with a few bytes changed, moved, lost or repeated."""
    content = bytearray(data)
    for _ in range(rng.randint(1, times)):
        place = rng.randrange(len(content) + 1)
        other = min(len(content), place + rng.choice((1, 2, 8, 64, 1024)))
        match rng.randrange(8):
            case 0 if place < len(content):
                content[place] ^= 1 << rng.randrange(8)
            case 1 if place < len(content):
                content[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                content[place:place] = rng.randbytes(rng.choice((1, 2, 16, 200)))
            case 3:
                del content[place:other]
            case 4:
                content[place:place] = content[place:other] * rng.choice((1, 2, 50))
            case 5:
                width = rng.choice((2, 4, 8))
                value = rng.choice((0, 1, -1, 2**15, 2**31 - 1, 2**31, 2**62, 2**63 - 1))
                content[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
            case 6 if rng.random() < 0.3:
                del content[place:]
            case _:
                source = rng.randrange(len(content) + 1)
                content[place:other] = content[source : source + other - place]
    return bytes(content)


def mutated_value(value: Any, rng: random.Random, times: int = 3) -> Any:
    """Nested lists and mappings with some of their values replaced, repeated, moved or left out."""
    for _ in range(rng.randint(1, times)):
        value = _mutated_once(value, rng)
    return value


def _mutated_once(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {name: item for name, item in value.items() if name != key}
        if rng.random() < 0.1:
            return {**value, rng.choice(TEXTS): hostile_value(rng)}
        return {**value, key: _mutated_once(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.2:
            return [*value, *value[place:]] * rng.choice((1, 2, 20))
        return [*value[:place], _mutated_once(value[place], rng), *value[place + 1 :]]
    return hostile_value(rng)


def hostile_value(rng: random.Random) -> Any:
    match rng.randrange(8):
        case 0 | 1:
            return rng.choice(NUMBERS)
        case 2:
            return rng.choice(FRACTIONS)
        case 3 | 4:
            return rng.choice(TEXTS)
        case 5:
            return rng.choice((None, True, False, [], {}, [[]], [None] * 100, {"": {}}))
        case 6:
            nested: Any = 1
            for _ in range(rng.choice((3, 50, 300))):
                nested = [nested] if rng.random() < 0.5 else {"a": nested}
            return nested
        case _:
            return {rng.choice(TEXTS): rng.choice(NUMBERS) for _ in range(3)}


def json_variant(value: Any, rng: random.Random) -> bytes:
    """A JSON file that went wrong in its values, its bytes or both."""
    if rng.random() < 0.85:
        value = mutated_value(value, rng)
    data = json.dumps(value).encode()
    if rng.random() < 0.2:
        data = mutated_bytes(data, rng)
    if rng.random() < 0.02:
        deep = rng.choice((b"[", b'{"a":', b"[[{")) * rng.choice((1000, 100_000))
        data = rng.choice((deep, data[:-1] + b',"rows":' + deep + b"}", data * 50))
    return data


class Hang(BaseException):
    """Reading took too long; no ``except Exception`` stops it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def run(make: Variants, seed: int, first: int, count: int) -> dict[str, Any]:
    """Read ``count`` variants; whatever is neither read nor refused with an InputError is a finding."""
    outcomes = {"read": 0, "refused": 0}
    findings: list[str] = []
    slowest = 0.0
    before = memory("VmRSS")  # earlier imports do not count as the cost of an input
    for number in range(first, first + count):
        read = make(random.Random(f"{seed}-{number}"))
        begin = time.process_time()
        try:
            with time_limit(LIMIT_SECONDS):
                read()
            outcomes["read"] += 1
        except InputError as error:
            outcomes["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 2000:
                findings.append(f"{number}: not one short line: {str(error)[:300]!r}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            findings.append(f"{number}: " + "".join(traceback.format_exception(error, limit=-4)))
        slowest = max(slowest, time.process_time() - begin)
    return {
        **outcomes,
        "findings": findings,
        "slowest_seconds": round(slowest, 3),
        "grown_bytes": memory("VmHWM") - before,
    }


def memory(field: str) -> int:
    """Bytes of this program, now (VmRSS) or at most so far (VmHWM); `getrusage` would count its parent as well."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    from support.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_SAFETY_BYTES, _SAFETY_BYTES))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        make = TARGETS[options.target](Path(folder))
        json.dump(run(make, options.seed, options.first, options.count), sys.stdout)


if __name__ == "__main__":
    main()
