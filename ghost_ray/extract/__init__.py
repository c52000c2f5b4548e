"""``extract``: images through a network into a store, on Ray Data.

plan       what there is to do, and everything that can be refused before a cluster is touched
pool       how many embedding actors, and what each task reserves
stages     what runs on the workers: list → read and decode → embed → write a block
pipeline   the stages as one Ray Data stream with its checkpoints
tally      what the workers report: progress, failures, metrics
resume     what an interrupted run left, and whether this run may go on with it
commit     from the finished blocks to a store
"""

from __future__ import annotations

from ghost_ray.extract.job import run

__all__ = ["run"]
