"""``extract``: images through a network into a store, on Ray Data; a few of them without Ray.

plan       what there is to do, and everything that can be refused before a cluster is touched
portions   the parts of the source, small ones grouped: the unit of listing, recording and checking
census     facts that need a complete listing
recipe     how a network is built, wherever it runs
pool       how many embedding actors, and what each task reserves
list_stage             portions → blocks of images that are left to do
decode_stage, pixels   blocks → read, decode and crop, in CPU tasks
embed_stage            pictures → rows, in the actors; network_client and network_process are the two ends of the
                       process that each has for its network, forward is what happens in it
losses, quarantine     what becomes of blocks and devices when such a process keeps dying
write_stage            rows → block files
pipeline   these stages as one Ray Data stream; packing keeps a block whole on its way
here       the same stages in threads of this process, for a few images
tally      what the workers report: progress and failures; ray_tally: on a cluster, with metrics
work_files what an unfinished run consists of
resume     what an interrupted run left, and whether this run may resume it
survey     whether every image is there once
commit     from the finished blocks to a store
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ghost_ray.config import ExtractConfig
from ghost_ray.files.checkpoints import checkpoint_kind

if TYPE_CHECKING:
    from ghost_ray.jobs.extract.extract_job import ExtractResult

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
    # Here and not above: the decoding workers import this package, and are to be small and free of torch.
    from ghost_ray.jobs.extract.here import may_run_here
    from ghost_ray.jobs.extract.network_client import kept_template

    if may_run_here(config):
        kept_template()  # imports torch while this process does
    from ghost_ray.jobs.extract.extract_job import extract

    return extract(config)
