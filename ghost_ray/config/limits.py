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

STREAM_ROUNDS = 3
"""How often in a row an extraction looks in vain for images without a row. Such images were lost with a node, or
remained when Ray lost something that the stream needs. A round in which any image was finished does not count."""

ACTOR_RESTARTS = 10
"""How often Ray restarts an embedding actor whose process died; losses with a preempted node do not count. Its blocks
are computed again."""

ACTOR_DEATHS = 3
"""How many processes of an embedding actor may die in a row, with no block computed in between, before the job ends."""

ACTOR_STARTS = 3
"""How many embedding actors in a row may die before they are ready. Each is replaced; then the round ends."""

DECODE_RETRIES = 1
"""How often Ray retries a decoding task whose worker or node died. Then the round ends, and what is left is decoded in
child processes: an image may have killed the worker."""

FORWARD_SECONDS = 600.0
"""Seconds for a block in the network, besides one for each of its images on a GPU and sixty on a CPU. A process that
takes longer is ended: a device that hangs must not hang the job. The environment variable GHOST_RAY_FORWARD_SECONDS,
set on every node, is another number, for the whole block."""

REQUEST_PAUSES = (0.1, 0.5, 2.0)
"""Seconds before each retry of a request to an object store. A local disk that fails is not retried."""

STORE_PATIENCE = 300.0
"""Seconds that a job waits for an object store that does not answer, or asks for fewer requests, before it ends; its
work is kept. The environment variable GHOST_RAY_STORE_PATIENCE sets another number."""


class Stage(StrEnum):
    """The stages of an image, as named in failures.parquet, in the manifest's seconds and in Ray's metrics.

    The listing of a shard reads its images: its seconds count as reading.
    """

    LIST = "list"  # found in a folder, a shard or a list
    READ = "read"
    DECODE = "decode"  # and resized and cropped
    EMBED = "embed"
    WRITE = "write"
