"""The device that an actor computes on: the GPU it reserved, or the CPU; never a fallback from one to the other."""

from __future__ import annotations

import ctypes
import os
import socket

import torch

from ghost_ray.errors import JobFailed

LOGICAL_GPUS = "GHOST_RAY_LOGICAL_GPUS"
"""Set where Ray only counts GPUs, in tests and simulations: what reserves one computes on the CPU."""


def reserved_device(gpus: float) -> str:
    """The device of a process for which ``gpus`` were reserved.

    Raises
    ------
    JobFailed
        If torch cannot use a reserved GPU, with the versions that do not fit together.
    """
    if not gpus or os.environ.get(LOGICAL_GPUS):
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    built = torch.version.cuda
    needs = f"torch {torch.__version__} needs " + (
        f"one for CUDA {built}" if built else "to be installed in a build for GPUs"
    )
    raise JobFailed(
        f"{socket.gethostname()}: a GPU is reserved and cannot be used: {driver()}, {needs} — update the driver or "
        f"install a torch that matches it; `gpus_per_actor=0` computes on CPUs"
    )


def driver() -> str:
    """What NVIDIA's driver on this machine can do, in words."""
    version = ctypes.c_int()
    try:
        found = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0
    except (OSError, AttributeError):
        found = False
    if not found or not version.value:
        return "there is no NVIDIA driver"
    return f"the driver is for CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def allow_tf32(allowed: bool) -> None:
    """Whether float32 products and convolutions may be computed from operands of 10 bits; torch mixes both."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
