"""Checks from every node that it sees the local paths of a job, before the work begins.

A local folder of one machine does not exist on another. If the nodes share no file system, a job would fail midway, on
every run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from ghost_ray.cluster.ray_interfaces import NodeName, other_working_nodes
from ghost_ray.config import PlaceUse, places_of
from ghost_ray.errors import InputError, JobFailed, redact
from ghost_ray.files import is_local, resolve

_ANSWER_SECONDS = 120.0
_WAY_OUT = "use a file system that all nodes share, or an object store (s3://, gs://, abfs://)"


@dataclass(frozen=True)
class _Probe:
    """What a node that sees a place finds there."""

    use: PlaceUse
    path: str
    size: int | None  # of a file; None for a folder

    def is_seen(self) -> bool:
        path = Path(self.path)
        try:
            return path.is_dir() if self.size is None else path.is_file() and path.stat().st_size == self.size
        except OSError:
            return False


def require_places(settings: BaseModel) -> None:
    """Refuse local paths in the settings that a node does not see; with one node, nothing is checked.

    Raises
    ------
    InputError
        Naming the setting, the place and the node.
    """
    local = [use for use in places_of(settings) if use.shared and is_local(use.uri)]
    nodes = other_working_nodes() if local else []
    if not nodes:
        return
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(_probing(use)) for use in local]
        unseen = _ask(nodes, [probe for probe in probes if probe is not None])
    for use, blind in unseen.items():
        more = f", nor do {len(blind) - 1} others" if len(blind) > 1 else ""
        raise InputError(use.field, redact(use.uri), f"the node {blind[0].name} does not see it{more}", _WAY_OUT)


@contextlib.contextmanager
def _probing(use: PlaceUse) -> Iterator[_Probe | None]:
    """What to look for; for an output path, a file that exists while the block runs."""
    path = Path(resolve(use.uri, use.field)[1])
    if not use.written:
        # A missing path is refused when it is opened.
        yield _Probe(use, str(path), path.stat().st_size if path.is_file() else None) if path.exists() else None
        return
    folder = next(above for above in path.parents if above.is_dir())
    mark = folder / f".ghost_ray-{secrets.token_hex(8)}"
    try:
        mark.write_text(mark.name)
    except OSError as error:
        raise InputError(
            use.field, redact(use.uri), f"cannot be written: {error.strerror}", "check the place"
        ) from None
    try:
        yield _Probe(use, str(mark), len(mark.name))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(mark)


def _ask(nodes: list[NodeName], probes: list[_Probe]) -> dict[PlaceUse, list[NodeName]]:
    """The places that are not seen, each with the nodes that do not see it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=2)(_unseen)
    answers = [
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(probes)
        for node in nodes
    ]
    found: dict[PlaceUse, list[NodeName]] = {}
    for node, answer in zip(nodes, answers, strict=True):
        try:
            for at in ray.get(answer, timeout=_ANSWER_SECONDS):
                found.setdefault(probes[at].use, []).append(node)
        except ray.exceptions.GetTimeoutError:
            raise JobFailed(f"the node {node.name} does not answer — see `ray status`, then run it again") from None
        except ray.exceptions.TaskUnschedulableError:
            continue  # it left
    return found


def _unseen(probes: list[_Probe]) -> list[int]:
    return [at for at, probe in enumerate(probes) if not probe.is_seen()]
