"""Reads the paper's numbers from the files beside this one."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

Relation = Literal["=", "<", ">="]
_FIELDS = ("table", "network", "unknown", "method", "metric")
_ROW = ("table", "line", "network", "unknown", "metric")  # columns of tables.csv; the others are methods


@dataclass(frozen=True)
class Caveat:
    """Something to know before a number is compared with."""

    kind: str  # differs, misprint, shifted, bold, draws, text or unstated: paper.toml explains them
    text: str


@dataclass(frozen=True)
class Table:
    """A table of the paper, or its running text."""

    name: str
    label: str  # in the source
    title: str
    note: str = ""


@dataclass(frozen=True)
class Published:
    """One number of the paper.

    A field that is empty is not given: the statement is about all networks, sets or methods together.
    """

    table: str
    lines: tuple[int, ...]  # of the paper's LaTeX source
    network: str
    unknown: str
    method: str
    metric: str  # as in metrics.json; `auroc_mean`, `auroc_std` and `auroc_p` are over draws
    relation: Relation
    value: float
    printed: str
    caveats: tuple[Caveat, ...]

    @property
    def half_unit(self) -> float:
        """Half of the last digit printed, in units of ``value``: what rounding alone may hide; 0 for a bound."""
        found = re.match(r"[\d,.]+(?:e-\d+)?", self.printed)
        if self.relation != "=" or found is None:
            return 0.0
        mantissa, _, exponent = found[0].replace(",", "").partition("e")
        power = int(exponent or 0)
        scale = self.value / (float(mantissa) * 10.0**power) if self.value else 1.0  # a percentage is printed × 100
        return 0.5 * scale * 10.0 ** (power - len(mantissa.partition(".")[2]))

    @property
    def source(self) -> str:
        """Its place in the paper: ``Table 1, line 361``."""
        where = "text" if self.table == "text" else self.table.replace("table-", "Table ")
        lines = " and ".join(map(str, self.lines))
        return f"{where}, line{'s' if len(self.lines) > 1 else ''} {lines}"


@cache
def numbers() -> tuple[Published, ...]:
    """All of them, in the order in which a lookup prefers the tables; the running text is last."""
    order = list(tables())
    return tuple(sorted([*_cells(), *_statements()], key=lambda entry: order.index(entry.table)))


def tables() -> dict[str, Table]:
    """The tables by name."""
    return {entry["name"]: Table(**entry) for entry in _paper()["table"]}


def find(
    *,
    table: str | None = None,
    network: str | None = None,
    unknown: str | None = None,
    method: str | None = None,
    metric: str | None = None,
) -> list[Published]:
    """Every number with these fields; a field left out selects all."""
    wanted = {"table": table, "network": network, "unknown": unknown, "method": method, "metric": metric}
    return [entry for entry in numbers() if all(v is None or getattr(entry, k) == v for k, v in wanted.items())]


def lookup(network: str, unknown: str, method: str, metric: str, table: str | None = None) -> Published | None:
    """The number to compare with, or None if the paper has none.

    Parameters
    ----------
    network, unknown : str
        Under any of the names that :func:`network_named` and :func:`unknown_named` understand.
    method, metric : str
        Names of ghost_ray's own: ``ghost``, ``auoscr``.
    table : str, optional
        ``table-1`` … ``table-6`` or ``text``. Default: the first that has it, the supplement before the main text.
    """
    found = find(
        table=table,
        network=network_named(network) or network,
        unknown=unknown_named(unknown) or unknown,
        method=method,
        metric=metric,
    )
    return found[0] if found else None


def network_named(name: str) -> str | None:
    """The paper's network that goes by this name, e.g. ``swin-t`` for ``torchvision:swin_t``."""
    return _names("network").get(_plain(name))


def unknown_named(name: str) -> str | None:
    """The paper's unknown set that goes by this name, e.g. ``21k-p-easy`` for ``ssb_easy``."""
    return _names("unknown").get(_plain(name))


def title(name: str) -> str:
    """What the paper calls a network or an unknown set: ``MAE-H`` for ``mae-h``."""
    paper = _paper()
    return str((paper["network"] | paper["unknown"])[name]["title"])


def spelled(name: str) -> str:
    """The paper's spelling of a name that is its own, ``NINCO`` for ``ninco``; any other, as ``dtd``, stays."""
    paper = _paper()
    titles = {_plain(own): entry["title"] for own, entry in (paper["network"] | paper["unknown"]).items()}
    titles |= {_plain(title): title for title in titles.values()}
    return str(titles.get(_plain(name), name))


def images_of(unknown: str) -> tuple[int, ...]:
    """How many images a complete copy of an unknown set has, one number per published version; empty if not known."""
    return tuple(_paper()["unknown"].get(unknown_named(unknown), {}).get("images", ()))


def _cells() -> Iterator[Published]:
    for row in csv.DictReader(io.StringIO(_text("tables.csv"))):
        for method in (column for column in row if column not in _ROW):
            if row[method]:
                yield _published(row | {"method": method}, row["line"], row[method], row[method])


def _statements() -> Iterator[Published]:
    for row in csv.DictReader(io.StringIO(_text("statements.csv"))):
        yield _published(row | {"table": "text"}, row["lines"], row["printed"], row["value"], row["relation"])


def _published(row: dict[str, str], lines: str, printed: str, value: str, relation: str = "=") -> Published:
    place = {name: row[name] for name in _FIELDS}
    caveats = tuple(
        Caveat(entry["kind"], entry["text"])
        for entry in _paper()["caveat"]
        if all(place[name] in _listed(entry[name]) for name in _FIELDS if name in entry)
    )
    return Published(
        **place,
        lines=tuple(map(int, lines.split())),
        relation=cast(Relation, relation),
        value=float(value),
        printed=printed,
        caveats=caveats,
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@cache
def _names(kind: Literal["network", "unknown"]) -> dict[str, str]:
    entries = _paper()[kind].items()
    return {_plain(other): name for name, entry in entries for other in (name, entry["title"], *entry["names"])}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads(_text("paper.toml"))


def _text(name: str) -> str:
    return files("ghost_ray.published").joinpath(name).read_text(encoding="utf-8")
