"""``extract``: images through a network into a store, on Ray Data.

plan       what there is to do, and everything that can be refused before a cluster is touched
pool       how many embedding actors, and what each task reserves
decoding   list → read, decode and crop, in CPU tasks
embedding  pictures → rows, in the actors
blocks     rows → block files
pipeline   these stages as one Ray Data stream with its checkpoints
tally      what the workers report: progress, failures, metrics
resume     what an interrupted run left, and whether this run may go on with it
commit     from the finished blocks to a store
"""

from __future__ import annotations

from typing import Any

from ghost_ray.config import ExtractConfig

__all__ = ["run"]


def run(config: ExtractConfig) -> dict[str, Any]:
    """Extract a store; an interrupted run is gone on with. Returns what was written.

    Raises
    ------
    InputError
        Before anything runs, for data, labels, network or settings that cannot work.
    GateFailed
        Where more images fail than ``max_failures`` allows. What was computed is kept.
    """
    # Here and not above: the decoding workers import this package, and are to be free of torch.
    from ghost_ray.extract.job import extract

    return extract(config)
