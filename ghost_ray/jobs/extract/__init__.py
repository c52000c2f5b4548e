"""``extract``: images through a network into a store, on Ray Data; a few of them without Ray.

The way of a picture:

listing        a group of shards → blocks of images that are left to do (CPU tasks)
decode         block → cropped pictures (CPU tasks)
embed          pictures → rows, in the actors that hold the network
blocks         rows → a block file; which blocks are done
commit         is every image there once? finished blocks → a store

Around it:

plan           what there is to do, and every refusal that needs no picture; census: facts that need a complete listing
preprocessing  a network's transform in two halves, one for decode and one for embed
pool           how many actors, and what each task reserves
resume         what an interrupted run left, and whether this run may resume it
job            the stages as one Ray Data stream, or in threads for a few images; progress comes out of the stream
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ghost_ray.config import ExtractConfig
from ghost_ray.files.file_types import checkpoint_kind

if TYPE_CHECKING:
    from ghost_ray.jobs.extract.job import ExtractResult

__all__ = ["run"]


def run(config: ExtractConfig) -> ExtractResult:
    """Extract a store; an interrupted run is resumed. Returns what was written.

    Raises
    ------
    InputError
        Before anything runs, for data, labels, network or settings that cannot work.
    GateFailed
        If more images fail than ``max_failures`` allows. What was computed is kept.
    """
    if config.weights is not None:
        checkpoint_kind(config.weights)  # before torch is imported
    # Here and not above: the decoding workers import this package, and are to be small.
    from ghost_ray.jobs.extract.job import extract

    return extract(config)
