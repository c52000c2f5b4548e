"""One image: bytes → the preprocessed array, here or in a child process that may die."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
from multiprocessing.connection import Connection

import numpy as np

from ghost_ray.cluster.ray_interfaces import pickled
from ghost_ray.errors import JobFailed, one_line
from ghost_ray.jobs.extract.pixels import Preprocessing
from ghost_ray.sources import DecodeError, decode


def prepare(preprocessing: Preprocessing, data: bytes) -> np.ndarray | str:
    """The prepared image, or the reason in one line why there is none."""
    try:
        prepared = preprocessing.prepare(decode(data))
    except DecodeError as error:
        return str(error)
    except Exception as error:  # a transform of any make on a picture of any shape
        return f"{type(error).__name__}: {one_line(error)}"
    if prepared.shape != preprocessing.shape:
        return f"the transform returned shape {prepared.shape}, expected {preprocessing.shape}"
    return prepared


class Apart:
    """Prepares images in a child process; an image that kills it is reported like any other that cannot be decoded."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self._what = pickled(preprocessing)
        self._start()

    def __call__(self, data: bytes) -> np.ndarray | str:
        try:
            self._connection.send_bytes(data)
            answer: np.ndarray | str = self._connection.recv()
            return answer
        except (EOFError, OSError):
            reason = self._ended()
            self._start()
            return reason

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a Ray worker would inherit locks of its threads
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._what), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._connection.recv()
        except EOFError:  # not the fault of an image
            raise JobFailed("cannot start a process for decoding") from None

    def _ended(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._connection.close()
        return f"decoding it ends the process, with {how}"


def _serve(connection: Connection, what: bytes) -> None:
    preprocessing: Preprocessing = pickle.loads(what)  # of the worker that started this process
    connection.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            connection.send(prepare(preprocessing, connection.recv_bytes()))
