"""Listing as a task of the stream. It is a separate module, so that a worker that imports it does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ghost_ray.jobs.extract.list_stage import Todo, timed
from ghost_ray.jobs.extract.packing import pack
from ghost_ray.jobs.extract.tally import Reporter


def list_blocks(lister: Any, todo: Todo, rows: int, to: Reporter) -> Iterator[pa.Table]:
    """The blocks of a portion, packed; its task runs until the last of them is taken.

    ``lister`` is Ray's reference to a ``Lister``.
    """
    import ray

    yield from map(pack, timed(ray.get(lister).blocks(todo, rows, to)))
