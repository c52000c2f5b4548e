"""Cropped pictures → rows in a block file, in the actors; each of them holds the network.

If the process of an actor dies, Ray starts it again and the blocks that it had are computed again. Nothing here imports
torch before a network is loaded: the driver imports this module too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ghost_ray.config.limits import ACTOR_DEATHS, FORWARD_SECONDS, REQUEST_PAUSES, Stage
from ghost_ray.errors import GhostRayError, JobFailed, Unreachable, one_line
from ghost_ray.jobs.extract.blocks import Block, BlockStats, BlockWriter
from ghost_ray.jobs.extract.decode import Preprocessing
from ghost_ray.store import to_table

if TYPE_CHECKING:
    import torch

    from ghost_ray.backbone import Backbone

CALLS = 3  # blocks that an actor has: one is computed, one is written, one is sent to it
LIMIT = "GHOST_RAY_FORWARD_SECONDS"
"""The environment variable that limits the seconds of a block in the network; see `FORWARD_SECONDS`."""

_SLOWEST_ON_GPU, _SLOWEST_ON_CPU = 1.0, 60.0  # seconds per image, beyond which a network is taken for hung
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")  # not all have a type of their own


@dataclass(frozen=True)
class NetworkSpec:
    """How a network is built; small, and without torch."""

    model: str
    weights: str | None
    precision: str
    compile: bool
    tf32: bool
    restrict: tuple[int, ...] | None
    weights_sha256: str | None = None  # of the plan's network

    def load(self, device: str) -> Backbone:
        """The network on a device; another one than the plan was made with is refused."""
        from ghost_ray.backbone import load_backbone
        from ghost_ray.backbone.devices import allow_tf32

        allow_tf32(self.tf32)
        backbone = load_backbone(self.model, self.weights, device, self.precision, self.compile, self.restrict)
        if self.weights_sha256 is not None:
            backbone.require_weights(self.weights_sha256, self.weights)
        return backbone


@dataclass(frozen=True)
class EmbedSpec:
    """What an actor runs, and on what."""

    network: NetworkSpec
    preprocessing: Preprocessing
    dimensions: int
    batch_size: int
    threads: int  # of torch, on a CPU
    gpus: float  # reserved for it


class Embed:
    """Runs the pictures of a block through the network and writes the rows. Several threads call it at a time.

    Parameters
    ----------
    is_actor : bool
        Whether Ray starts this process again if it dies. Where nobody does, its death is the end of the command.
    """

    def __init__(self, spec: EmbedSpec, write: BlockWriter, is_actor: bool = False) -> None:
        self._spec, self._write = spec, write
        self._computing = threading.Lock()
        self._lives = Lives(_actor_id()) if is_actor else None
        self._forward: Forward | None = None
        self._refusal: GhostRayError | None = None
        # Ray would restart an actor whose constructor raises, without success: so the first block reports the error.
        try:
            if self._lives is not None and self._lives.deaths >= ACTOR_DEATHS:
                raise self._failure(f"{self._lives.cause}, {self._lives.deaths} times in a row")
            self._forward = self._load()
        except GhostRayError as error:
            self._refusal = error
        except Exception as error:  # networks, torch, drivers and hubs each have their own types
            self._refusal = self._failure(f"the network cannot be loaded: {_in_words(error)}")

    def __call__(self, block: Block) -> BlockStats:
        if self._refusal is not None:
            raise self._refusal
        images = block.images
        sound = np.flatnonzero(np.asarray(images["stage"].is_null()))
        pixels = images["pixels"].combine_chunks().flatten().to_numpy(zero_copy_only=True)
        pictures = pixels.reshape(images.num_rows, *self._spec.preprocessing.shape)
        found = self._embed(pictures if len(sound) == len(pictures) else pictures[sound]) if len(sound) else None
        if found is not None:
            block.seconds[Stage.EMBED] = found.seconds
            if self._lives is not None:
                self._lives.forget_deaths()
        rows = _rows(images, sound, found, self._spec.dimensions)
        return self._write(block, rows, 0 if found is None else found.batch_size)

    def _load(self) -> Forward:
        import torch

        from ghost_ray.backbone.devices import reserved_device

        # Ray limits OpenMP to one thread in every task that reserves at most one CPU.
        torch.set_num_threads(self._spec.threads)
        warnings.filterwarnings("ignore", message=".*not writable.*")
        device = reserved_device(self._spec.gpus)
        for pause in (*REQUEST_PAUSES, None):
            try:
                backbone = self._spec.network.load(device)
                break
            except GhostRayError as error:
                temporary = isinstance(error, Unreachable) or isinstance(error.__cause__, OSError)
                if pause is None or not temporary:
                    raise
                time.sleep(pause)
        return Forward(backbone, self._spec.preprocessing, self._spec.batch_size, pad=self._spec.network.compile)

    def _embed(self, pictures: np.ndarray) -> Embedded:
        """The results of a block. A device whose state is unknown after an error ends this process."""
        assert self._forward is not None
        try:
            with self._limited(len(pictures)):
                with self._computing:
                    running = self._forward.submit(pictures)
                return self._forward.collect(running)
        except GhostRayError:
            raise
        except Exception as error:  # of the network or of the device's driver
            cause = f"the network failed: {_in_words(error)}"
            if self._spec.gpus and self._lives is not None:
                self._lives.end(cause)
            raise self._failure(cause) from error

    @contextlib.contextmanager
    def _limited(self, images: int) -> Iterator[None]:
        """End this process if the block takes longer than a generous limit: a device that hangs never returns."""
        slowest = _SLOWEST_ON_GPU if self._spec.gpus else _SLOWEST_ON_CPU
        seconds = float(os.environ.get(LIMIT) or FORWARD_SECONDS + CALLS * images * slowest)
        timer = threading.Timer(seconds, self._give_up, [f"a forward pass did not return within {seconds:,.0f} s"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, cause: str) -> None:
        if self._lives is not None:
            self._lives.end(cause)
        sys.stderr.write(f"ghost-ray: {self._failure(cause)}\n")
        os._exit(1)

    def _failure(self, cause: str) -> JobFailed:
        trapped = self._lives is not None and "SIGILL" in cause and self._spec.network.precision == "bf16"
        if trapped and not self._spec.gpus:
            cause += (
                "; the CPU announces instructions that it traps, AMX above all: set "
                "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 on all nodes, or use fp32"
            )
        return JobFailed(f"{socket.gethostname()}: {cause} — finished work is kept")


def _rows(images: pa.Table, sound: np.ndarray, found: Embedded | None, dimensions: int) -> pa.Table:
    """The rows of a block; those of images that failed are zero."""
    stages, errors = images["stage"].to_pylist(), images["error"].to_pylist()
    embedding = np.zeros((images.num_rows, dimensions), np.float32)
    prediction = np.zeros(images.num_rows, np.int32)
    if found is not None:
        good = found.finite
        embedding[sound] = found.embedding if good.all() else np.where(good[:, None], found.embedding, 0)
        prediction[sound] = np.where(good, found.prediction, 0)
        for row in sound[~good]:
            stages[row], errors[row] = Stage.EMBED, "the embedding or its logits are not finite"
    table = to_table(
        images["key"].combine_chunks(),
        images["label"].to_numpy(),
        prediction,
        embedding,
        group=images["group"].combine_chunks(),
    )
    table = table.append_column("position", images["position"])
    table = table.append_column("failed", pa.array([stage is not None for stage in stages], pa.bool_()))
    table = table.append_column("stage", pa.array(stages, pa.string()))
    return table.append_column("error", pa.array(errors, pa.string()))


# ---- the forward pass


@dataclass(frozen=True)
class Embedded:
    """The results of the pictures of a block; where they are not finite, the numbers mean nothing."""

    embedding: np.ndarray  # [n, D] float32
    prediction: np.ndarray  # [n] int64
    finite: np.ndarray  # [n] bool
    seconds: float  # that the device was busy with it
    batch_size: int  # the largest that was computed at a time


@dataclass
class InFlight:
    """A block that the device is computing."""

    outputs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]  # on the host, once `done`
    done: Any  # the CUDA event behind the last copy; None on a CPU
    submitted: float
    batch_size: int


class Forward:
    """Runs blocks of pictures; :meth:`submit` hands one to the device, :meth:`collect` waits for its results.

    On a GPU, images are copied from pinned memory on a stream of their own while the previous batch is computed, and
    results are copied back while the next block starts. If memory is short the batch is halved permanently.
    """

    def __init__(self, backbone: Backbone, preprocessing: Preprocessing, batch_size: int, *, pad: bool) -> None:
        import torch

        self._backbone, self._preprocessing, self.batch_size, self._pad = backbone, preprocessing, batch_size, pad
        self._on_gpu = backbone.device.type == "cuda"
        self._copying = torch.cuda.Stream(backbone.device) if self._on_gpu else None
        self._free_since = time.perf_counter()

    def submit(self, pictures: np.ndarray) -> InFlight:
        """Hand over pictures [n, ...], which stay as they are until their results are collected."""
        import torch

        start, outputs, first = time.perf_counter(), [], 0
        while first < len(pictures):
            batch = torch.from_numpy(pictures[first : first + self.batch_size])
            try:
                outputs.append(self._run(batch))
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                self._halve(error)
                continue
            first += len(batch)
        done = None
        if self._on_gpu:
            done = torch.cuda.Event(blocking=True)  # which waits without using a core
            done.record()
        return InFlight(outputs, done, start, self.batch_size)

    def collect(self, running: InFlight) -> Embedded:
        """Wait for the results of a block."""
        if running.done is not None:
            running.done.synchronize()
        now = time.perf_counter()
        # The previous block may have used the device for a while after this one was handed over.
        seconds, self._free_since = now - max(running.submitted, self._free_since), now
        vectors, classes, finite = (
            np.concatenate([each.numpy() for each in column]) for column in zip(*running.outputs, strict=True)
        )
        return Embedded(vectors, classes, finite, max(0.0, seconds), running.batch_size)

    def _run(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        import torch

        count = len(batch)
        if self._pad and count < self.batch_size:
            # A compiled network is compiled again for every new shape.
            batch = torch.cat([batch, batch.new_zeros(self.batch_size - count, *batch.shape[1:])])
        vectors, logits = self._backbone.embed(self._preprocessing.finish(self._to_device(batch)))
        vectors, logits = vectors[:count], logits[:count]
        finite = torch.isfinite(vectors).all(1) & torch.isfinite(logits).all(1)
        return self._to_host(vectors), self._to_host(logits.argmax(1)), self._to_host(finite)

    def _to_device(self, batch: torch.Tensor) -> torch.Tensor:
        if self._copying is None:
            return batch
        import torch

        computing = torch.cuda.current_stream(self._backbone.device)
        with torch.cuda.stream(self._copying):
            copied = batch.pin_memory().to(self._backbone.device, non_blocking=True)
        computing.wait_stream(self._copying)
        copied.record_stream(computing)
        return copied

    def _to_host(self, values: torch.Tensor) -> torch.Tensor:
        if not self._on_gpu:
            return values
        import torch

        return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)

    def _halve(self, error: RuntimeError) -> None:
        if self.batch_size == 1:
            raise JobFailed(f"not even one image at a time fits into the device's memory: {error}") from error
        self.batch_size //= 2
        if self._on_gpu:
            import torch

            torch.cuda.empty_cache()


def _is_out_of_memory(error: RuntimeError) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY)


def _in_words(error: BaseException) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return one_line(f"{type(error).__name__}: {first}")


# ---- how processes of an actor died

_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Illegal instruction": signal.SIGILL,
    "Bus error": signal.SIGBUS,
    "Aborted": signal.SIGABRT,
    "Floating-point exception": signal.SIGFPE,
}
_BEGIN, _CAUSE = "begin\n", "cause: "


def _actor_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_actor_id())  # the same for all processes that Ray starts for an actor


class Lives:
    """How the earlier processes of an actor died: Ray says that one died, and not of what.

    Each leaves a note in the node's temporary folder. An actor that Ray starts again on another node begins anew.
    """

    def __init__(self, actor: str) -> None:
        path = os.path.join(tempfile.gettempdir(), f"ghost_ray-{os.getuid()}-{actor}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(descriptor, "a+", encoding="utf-8", errors="replace")
        self._file.seek(0)
        earlier = self._file.read()
        self.deaths = earlier.count(_BEGIN)
        self.cause = self._last_cause(earlier.rpartition(_BEGIN)[2])
        self._file.write(_BEGIN)
        self._file.flush()
        # Ray has handlers of its own for these signals, which call each other and hide which one it was.
        faulthandler.disable()
        for number in _SIGNALS.values():
            ctypes.CDLL(None).signal(number, None)
        faulthandler.enable(self._file)
        atexit.register(_remove, path)

    @staticmethod
    def _last_cause(note: str) -> str:
        for line in note.splitlines():
            if line.startswith(_CAUSE):
                return line.removeprefix(_CAUSE)
        for words, number in _SIGNALS.items():
            if words in note:
                return f"the network's process ended with {number.name}"
        return "the network's process was killed, as when memory runs out"

    def forget_deaths(self) -> None:
        """A block was computed: the network and the device work."""
        if self.deaths:
            self.deaths = 0
            self._file.truncate(0)
            self._file.write(_BEGIN)
            self._file.flush()

    def end(self, cause: str) -> None:
        """End this process; Ray starts it again."""
        self._file.write(f"{_CAUSE}{cause}\n")
        self._file.flush()
        os._exit(1)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
