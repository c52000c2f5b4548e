"""Resource reservations, the names of the extraction stages, and limits on retries.

All of them are defined here, so that a reader finds in one place what a job requests and how long it waits. The rule
behind the numbers: system failures are retried a bounded number of times; failures caused by the input are recorded at
once and not retried.
"""

from __future__ import annotations

from enum import StrEnum

EMBEDDING_OPTIONS = ("model", "precision", "compile", "tf32")
"""Settings of a network that, beside its weights, determine an embedding; all others only affect the speed."""

TASK_CPUS = 1.0
"""CPUs reserved by a task that reads, sorts or computes: one of its threads is always busy."""

ARRANGE_MEMORY = 1 << 30
"""Bytes reserved by a task that sorts rows by class: a quarter for its rows, the rest for its libraries."""

TASK_RETRIES = 5
"""How often Ray retries a task whose worker or node died. A task that raised an exception is not retried."""

STREAM_ROUNDS = 5
"""How often in a row an extraction looks in vain for images without a row. Such images were lost with a node, or
remained when Ray lost something that the stream needs. A round in which any image was finished does not count."""

NETWORK_LOSSES = 4
"""How many processes that hold a network may die in a row, with nothing computed in between, before the device of an
actor is given up. Half of the actors may lose theirs before the job ends."""

ACTOR_RESTARTS = 10
"""How often Ray restarts an embedding actor that died; losses with a preempted node do not count."""

ACTOR_STARTS = 3
"""How many embedding actors in a row may die before they are ready. Each is replaced; then the round ends."""

REQUEST_PAUSES = (0.1, 0.5, 2.0)
"""Seconds before each retry of a request to an object store. A local disk that fails is not retried."""

STORE_PATIENCE = 300.0
"""Seconds that a job waits for an object store that does not answer, or asks for fewer requests, before it ends; its
work is kept. The environment variable GHOST_RAY_STORE_PATIENCE sets another number."""

LOST_NODE_PATIENCE = 120.0
"""Seconds without a finished image after a node was lost, before the round ends and another one begins. The driver may
wait for a node that is cut off until its connections time out, which takes Ray seven minutes."""

JOIN_PATIENCE = 45.0
"""Seconds that a job waits for nodes to join if nothing indicates that any will."""

NODE_PATIENCE = 3600.0
"""Seconds that a job waits for nodes that the autoscaler may still add. GPUs can be scarce in a cloud."""


class Stage(StrEnum):
    """The stages of an image, as named in failures.parquet, in the manifest's seconds and in Ray's metrics."""

    LIST = "list"  # found in a folder, a shard or a list
    READ = "read"
    DECODE = "decode"  # and resized and cropped
    EMBED = "embed"
    WRITE = "write"


TIMED_STAGES = (Stage.READ, Stage.DECODE, Stage.EMBED, Stage.WRITE)
"""The stages whose seconds are added up. The listing of a shard reads its images: that is counted as reading."""
