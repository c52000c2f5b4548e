"""Networks that fail on images, `--model support.failing_networks:NAME`. They accept the noise of the check."""

from __future__ import annotations

import os
import signal
import time

import torch
from PIL import Image
from torch import nn

from support.networks import Small, prepared

CUDA_ERROR = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
FITS = 16  # pictures


def _are_pictures(x: torch.Tensor) -> bool:
    return bool(x.abs().max() <= 1)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


class _ShortOfMemory(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > FITS:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().forward(x)


class _AlwaysDies(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _are_pictures(x):
            _die()
        return super().forward(x)


class _BrokenDevice(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _are_pictures(x):
            raise RuntimeError(CUDA_ERROR)
        return super().forward(x)


class _TrappedInstruction(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _are_pictures(x):
            os.kill(os.getpid(), signal.SIGILL)
        return super().forward(x)


class _Hangs(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _are_pictures(x):
            time.sleep(1000)
        return super().forward(x)


class _TransformDiesOfWhite:
    def __call__(self, picture: Image.Image) -> torch.Tensor:
        if picture.getextrema() == ((255, 255),) * 3:
            _die()
        return prepared(picture)


class _DecoderDiesOfWhite(Small):
    transform = _TransformDiesOfWhite()


def decoder_dies_of_white() -> nn.Module:
    return _DecoderDiesOfWhite()


def short_of_memory() -> nn.Module:
    return _ShortOfMemory()


def always_dies() -> nn.Module:
    return _AlwaysDies()


def broken_device() -> nn.Module:
    """Raises what CUDA raises after a fault, on every picture."""
    return _BrokenDevice()


def trapped_instruction() -> nn.Module:
    """Dies as a CPU does that announces instructions and traps them."""
    return _TrappedInstruction()


def hangs() -> nn.Module:
    """Never returns."""
    return _Hangs()
