"""Numbers as people read them."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from ghost_ray.report.document import Cell

NOTHING = "–"


def number(value: Any) -> float | None:
    """``value`` as a finite float, or None: values in files may be missing or damaged."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None


def percent(value: Any, digits: int = 2) -> str:
    """0.0279 → 2.79 %; a value that is not zero is never shown as zero."""
    found = number(value)
    if found is None:
        return NOTHING
    shown = f"{100 * found:.{digits}f}"
    return f"{100 * found:.1g} %" if found and not float(shown) else f"{shown} %"


def decimal(value: Any, digits: int = 3) -> str:
    found = number(value)
    return NOTHING if found is None else f"{found:.{digits}f}".replace("-", "−")


def told_apart(*values: float) -> list[str]:
    """Decimals of equal length: three digits, or as many as needed so that different values look different."""
    for digits in range(3, 17):
        shown = [decimal(value, digits) for value in values]
        if len({*shown}) == len({*values}):
            break
    return shown


def shown_value(text: str) -> float:
    """The number that a decimal shows."""
    return float(text.replace("−", "-"))


def short(value: Any) -> str:
    """Three digits: −1.21, 0.0042, 1.3e+05."""
    found = number(value)
    return NOTHING if found is None else f"{found:.3g}".replace("-", "−")


def whole(value: Any) -> str:
    """1280000 → 1,280,000."""
    found = number(value)
    return NOTHING if found is None else f"{int(found):,}"


def small(value: Any) -> str:
    """A p-value: 0.031, or 2.4e-07 where it is tiny."""
    found = number(value)
    if found is None:
        return NOTHING
    return f"{found:.3f}" if found >= 0.001 or found == 0 else f"{found:.1e}".replace("e-0", "e−").replace("e-", "e−")


def signed(value: Any, digits: int = 3) -> str:
    """+0.012 or −0.012."""
    found = number(value)
    if found is None:
        return NOTHING
    return ("+" if found >= 0 else "−") + f"{abs(found):.{digits}f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 class``, ``2 classes``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def text_cell(value: Any) -> Cell:
    return Cell(str(value))


def percent_cell(value: Any, digits: int = 2, best: bool = False) -> Cell:
    return Cell(percent(value, digits), number(value), best)


def decimal_cell(value: Any, digits: int = 3, best: bool = False) -> Cell:
    return Cell(decimal(value, digits), number(value), best)


def whole_cell(value: Any) -> Cell:
    return Cell(whole(value), number(value))


def class_name(names: list[str] | None, index: int) -> str:
    """The name of a class, or its number where no names are known."""
    return names[index] if names is not None and 0 <= index < len(names) else f"class {index}"
