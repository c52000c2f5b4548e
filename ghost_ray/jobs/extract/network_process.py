"""The process that holds the network. An actor starts it, sends it work, and outlives it.

A fatal error (a driver's SIGSEGV, the kernel's OOM killer, an instruction that the CPU traps, a CUDA error after which
no call succeeds) ends only this process, and the actor starts another. Images come in a file in memory with one slot
per block in flight; orders and results go through a socket.

Importing torch and timm takes seconds, and a network that keeps dying is started several times. So an actor starts a
template, which imports them and computes nothing, and forks every network from it.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import queue
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np

from ghost_ray.errors import GhostRayError, Unreachable, one_line
from ghost_ray.jobs.extract.pixels import Preprocessing
from ghost_ray.jobs.extract.recipe import Recipe

if TYPE_CHECKING:
    from ghost_ray.jobs.extract.forward import Batches, Begun


@dataclass(frozen=True)
class Task:
    """What the process is to run, and on what."""

    recipe: Recipe
    preprocessing: Preprocessing
    batch_size: int
    threads: int  # of torch, on a CPU
    gpus: float  # reserved for it


@dataclass(frozen=True)
class Order:
    """A block to compute: the first ``images`` pictures of a slot."""

    slot: int
    images: int


@dataclass(frozen=True)
class Ready:
    """The network is loaded and has passed its proof on the device."""


@dataclass(frozen=True)
class Refused:
    """The network cannot be loaded; ``error`` is for the user."""

    error: GhostRayError
    passing: bool  # whether it is temporary: a hub or a store did not answer


@dataclass(frozen=True)
class Failed:
    """Loading or a block raised an unexpected error; this process can no longer be trusted."""

    cause: str  # one line


@dataclass(frozen=True)
class Embedded:
    """The results of the images of a block; where they are not finite, the numbers mean nothing.

    It is defined here, because the actor that unpickles it must not import torch.
    """

    embedding: np.ndarray  # [n, D] float32
    prediction: np.ndarray  # [n] int64
    finite: np.ndarray  # [n] bool
    seconds: float  # that the device was at it
    batch_size: int  # the largest that was computed at a time


@dataclass(frozen=True)
class Done:
    """A block's results."""

    slot: int
    embedded: Embedded


Answer = Ready | Refused | Failed | Done
MAX_SLOTS = 8
NUMBER = struct.Struct("i")  # what the template says: the process of a network, then how it ended


def main() -> None:
    """The template: import, then fork a network for each set of open files that comes, and say how it ended."""
    actor = socket.socket(fileno=int(sys.argv[1]))
    for needed in ("torch", "timm.data", "ghost_ray.backbone", "ghost_ray.jobs.extract.forward"):
        importlib.import_module(needed)
    while True:
        asked, files, _, _ = socket.recv_fds(actor, 1, MAX_SLOTS + 1)
        if not asked:
            return
        process = os.fork()
        if not process:
            actor.close()
            _run(*files)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        for file in files:
            os.close(file)
        _tell(actor, process)
        _tell(actor, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _tell(actor: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the actor is gone, as the next read will show
        actor.sendall(NUMBER.pack(number))


def _run(orders_and_answers: int, *slots: int) -> None:
    """Load the network that the first message names, then answer one order at a time until the actor is gone."""
    connection = Connection(orders_and_answers)
    task: Task
    task, environment = connection.recv()
    os.environ.clear()  # the template's is of the time when it was started
    os.environ.update(environment)
    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, orders), daemon=True).start()
    one_at_a_time = threading.Lock()

    def answer(what: Answer) -> None:
        with one_at_a_time:
            connection.send(what)

    try:
        batches = _load(task)
        answer(Ready())
        _serve(answer, orders, batches, slots, task.preprocessing)
    except GhostRayError as error:
        passing = isinstance(error, Unreachable) or isinstance(error.__cause__, OSError)
        answer(Refused(error, passing))
    except Exception as error:  # networks, torch, drivers and hubs each have their own types
        answer(Failed(_in_words(error)))


def _receive(actor: Connection, orders: queue.SimpleQueue[Order]) -> None:
    """Pass the orders on; if the actor is gone, exit at once, even during a computation."""
    try:
        while True:
            orders.put(actor.recv())
    except (EOFError, OSError):
        os._exit(0)


def _load(task: Task) -> Batches:
    import torch

    from ghost_ray.backbone.devices import reserved_device
    from ghost_ray.jobs.extract.forward import Batches

    # Ray limits OpenMP to one thread in every task that reserves at most one CPU.
    torch.set_num_threads(task.threads)
    warnings.filterwarnings("ignore", message=".*not writable.*")
    backbone = task.recipe.load(reserved_device(task.gpus))
    return Batches(backbone, task.preprocessing, task.batch_size, pad=task.recipe.compile)


def _serve(
    answer: Callable[[Answer], None],
    orders: queue.SimpleQueue[Order],
    batches: Batches,
    slots: tuple[int, ...],
    preprocessing: Preprocessing,
) -> None:
    """Begin blocks in this thread and send results from another, so that a GPU finds the next block waiting."""
    begun: queue.SimpleQueue[tuple[Order, Begun]] = queue.SimpleQueue()

    def finish() -> None:
        try:
            while True:
                order, block = begun.get()
                answer(Done(order.slot, batches.finish(block)))
        except Exception as error:  # failed GPU work is only detected here
            answer(Failed(_in_words(error)))
            os._exit(1)

    threading.Thread(target=finish, daemon=True).start()
    while True:
        order = orders.get()
        pixels = _pictures(slots[order.slot], order.images, preprocessing)
        begun.put((order, batches.begin(pixels)))


def _pictures(slot: int, images: int, preprocessing: Preprocessing) -> np.ndarray:
    """The images in a slot, without a copy."""
    shape, dtype = (images, *preprocessing.shape), preprocessing.dtype
    return np.frombuffer(mmap.mmap(slot, images * preprocessing.bytes, prot=mmap.PROT_READ), dtype).reshape(shape)


def _in_words(error: BaseException) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return one_line(f"{type(error).__name__}: {first}")
