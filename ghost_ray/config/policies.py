"""What a task reserves, what the stages of an extraction are called, and how often what fails is tried again.

Each is written here once, so that a reader finds in one place what a cluster is asked for and how long a job waits.
The rule behind the numbers: what the system broke is tried again a bounded number of times; what the input broke
fails at once and is recorded.
"""

from __future__ import annotations

from enum import StrEnum

EMBEDDING_OPTIONS = ("model", "precision", "compile", "tf32")
"""Settings of a network that decide, beside its weights, over an embedding; all others only over how fast it is had."""

TASK_CPUS = 1.0
"""CPUs that a task reserves which reads, sorts or computes: one thread of it is busy all the time."""

ARRANGE_MEMORY = 1 << 30
"""Bytes that a task reserves which sorts rows by class: it holds a quarter of that in rows, and its libraries."""

TASK_RETRIES = 5
"""How often Ray runs a task again whose worker or node died. An exception that the task raised is not repeated."""

STREAM_ROUNDS = 5
"""How often an extraction looks for images without a row and computes them: what a dying node took with it, and what
was left when Ray lost something that the stream cannot do without."""

NETWORK_LOSSES = 4
"""How many processes that hold a network may die in a row, with nothing computed in between, before the device of an
actor is given up. Half of the actors may lose theirs before the job ends."""

ACTOR_RESTARTS = 10
"""How often Ray starts an embedding actor again that died, beside those that went with a preempted node."""

ACTOR_STARTS = 3
"""How many embedding actors in a row may be lost before they are ready, each being replaced, before a round ends."""

REQUEST_PAUSES = (0.1, 0.5, 2.0)
"""Seconds before each further attempt of a request to an object store. A local disk that fails will fail again."""

STORE_PATIENCE = 30.0
"""Seconds that an object store as a whole may be down before a job ends; its work is kept."""

JOIN_PATIENCE = 45.0
"""Seconds that a job waits for nodes to join where nothing says that any will."""

NODE_PATIENCE = 3600.0
"""Seconds that a job waits for nodes that the autoscaler may still bring. A cloud short of GPUs takes its time."""


class Stage(StrEnum):
    """What an image passes. The names are those in failures.parquet, in the manifest's seconds and in Ray's metrics."""

    LIST = "list"  # found in a folder, a shard or a list
    READ = "read"
    DECODE = "decode"  # and resized and cropped
    EMBED = "embed"
    WRITE = "write"


TIMED_STAGES = (Stage.READ, Stage.DECODE, Stage.EMBED, Stage.WRITE)
"""The stages whose seconds are added up; listing is over before the first of them begins."""
