"""JSON files of bounded size and depth, and sealed ones, in which a changed byte is detected."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from ghost_ray.errors import one_line
from ghost_ray.files.paths import read_bytes, write_bytes

SEAL = "seal"  # the last key of a sealed file: SHA-256 of the file with zeros in this place
_NO_SEAL = "0" * 64

# A value takes up to fifty times its text in memory, and several times more as part of a manifest, so values are
# limited as well as bytes: within both limits, a file takes less than 1 GiB. The names of ImageNet-21k are 2 MB and
# 70,000 values.
_MAX_JSON_BYTES, _MAX_JSON_VALUES = 64 << 20, 4_000_000
_MAX_SEALED_BYTES, MAX_CHECKED_VALUES = 32 << 20, 1_000_000  # of files that pydantic checks
_MAX_JSON_DEPTH = 64
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")  # of a surrogate pair; Python can read it but not write it


def read_json(uri: str, most_values: int = _MAX_JSON_VALUES) -> Any:
    """Parse a JSON file of bounded size and depth; ValueError says in one line what is wrong with it.

    Everything that is read can be written again: no NaN, no infinity, no incomplete character.
    """
    return parse_json(read_bytes(uri, limit=_MAX_JSON_BYTES), most_values)


def parse_json(data: bytes, most_values: int = _MAX_JSON_VALUES) -> Any:
    """`read_json` for bytes that were read already."""
    # Every value follows one of these signs. Those inside strings count too, which real files stay far below.
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > most_values:
        raise ValueError(f"holds more than the {most_values:,} values allowed")
    try:
        value = json.loads(data, parse_constant=_no_number, parse_float=_finite)
        if _HALF_CHARACTER.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({one_line(error)})") from None
    _refuse_depth(value)
    return value


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _refuse_depth(value: Any) -> None:
    layer, depth = [value], 0
    while layer := [child for outer in layer for child in _children(outer) if isinstance(child, dict | list)]:
        depth += 1
        if depth > _MAX_JSON_DEPTH:
            raise ValueError(f"is nested more than {_MAX_JSON_DEPTH} deep")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def write_json(uri: str, value: Any) -> None:
    """Write JSON with a stable layout; NaN and infinity are refused, since JSON has no word for them."""
    write_bytes(uri, layout(value))


def layout(value: Any) -> bytes:
    """The bytes `write_json` writes."""
    return (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def write_sealed(uri: str, value: dict[str, Any]) -> None:
    """Write a JSON object that ends with a seal."""
    write_bytes(uri, sealed(value))


def sealed(value: dict[str, Any]) -> bytes:
    """The bytes of a sealed file."""
    unsigned = layout({**value, SEAL: _NO_SEAL})
    return _with_seal(unsigned, _NO_SEAL, hashlib.sha256(unsigned).hexdigest())


def _with_seal(data: bytes, old: str, new: str) -> bytes:
    before, found, after = data.rpartition(old.encode())
    return before + new.encode() + after if found else data


def read_sealed(uri: str) -> Any:
    """`read_json`, and ValueError if the bytes are not those that were sealed; a file without a seal is accepted.

    The seal itself is not part of what is returned.
    """
    return unsealed(read_bytes(uri, limit=_MAX_SEALED_BYTES))


def unsealed(data: bytes) -> Any:
    """`read_sealed` for bytes that were read already."""
    value = parse_json(data, MAX_CHECKED_VALUES)
    if isinstance(value, dict) and SEAL in value:
        seal = value.pop(SEAL)
        if not isinstance(seal, str) or hashlib.sha256(_with_seal(data, seal, _NO_SEAL)).hexdigest() != seal:
            raise ValueError("is not as it was written: its bytes have changed")
    return value
