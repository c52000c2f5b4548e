"""The numbers of the paper's tables and text, each with its source and what is to be known about it.

>>> from ghost_ray.published import lookup
>>> found = lookup("mae-h", "ninco", "msp", "auoscr")
>>> found.value, found.source, [caveat.kind for caveat in found.caveats]
(0.76, 'Table 5, line 650', ['differs', 'misprint'])

tables.csv      one line per table row and metric, one column per method
statements.csv  the numbers in the running text
paper.toml      tables, names, and where the paper is inconsistent
"""

from __future__ import annotations

from ghost_ray.published.paper_numbers import (
    Caveat,
    Published,
    Table,
    find,
    images_of,
    lookup,
    network_named,
    numbers,
    spelled,
    tables,
    title,
    unknown_named,
)

__all__ = [
    "Caveat",
    "Published",
    "Table",
    "find",
    "images_of",
    "lookup",
    "network_named",
    "numbers",
    "spelled",
    "tables",
    "title",
    "unknown_named",
]
