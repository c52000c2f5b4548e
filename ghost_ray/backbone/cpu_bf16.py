"""Whether bf16 can be computed on this CPU, tried in a child process first.

Some virtual machines announce instructions, AMX above all, that their hypervisor does not allow. oneDNN, which computes
for torch, chooses them for bf16, and the process ends with SIGILL. It can be limited to AVX-512, but only before its
first use in a process.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
from functools import cache

import torch
from torch import nn
from torch.backends import mkldnn

from ghost_ray.errors import InputError, JobFailed

SETTING, NARROWED = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
PROBE = """
import torch
pixels = torch.ones(8, 3, 32, 32)
with torch.inference_mode(), torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
    torch.nn.Conv2d(3, 64, 3)(pixels)  # prints which instructions are used
with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
    rows = torch.nn.Conv2d(3, 64, 3)(pixels).flatten(2).transpose(1, 2)
    rows = torch.nn.Linear(64, 64)(rows)
    torch.nn.functional.scaled_dot_product_attention(rows, rows, rows)
"""
_TIMEOUT = 300  # seconds; importing torch takes one or two, on a busy machine more


@cache
def ensure_bf16() -> None:
    """Return if this process can compute in bf16 on the CPU, with a smaller instruction set if necessary.

    Raises
    ------
    InputError
        If bf16 kills a process with every instruction set, or if it is too late to choose one in this process.
    """
    code, _ = _try({})
    if code >= 0:  # an error other than a signal would be raised in this process too, and can be read there
        return
    problem = f"ends a process on this CPU with {signal.Signals(-code).name}"
    code, said = _try({SETTING: NARROWED})
    if code != 0:
        raise InputError("precision", "bf16", problem, "use fp32")
    before = os.environ.get(SETTING)
    os.environ[SETTING] = NARROWED
    if _instructions(_introduction()) != _instructions(said):
        os.environ.pop(SETTING) if before is None else os.environ.update({SETTING: before})
        hint = f"set {SETTING}={NARROWED} before Python starts, or use fp32"
        raise InputError("precision", "bf16", f"{problem}, and this one has used torch before", hint)


def _try(environment: dict[str, str]) -> tuple[int, str]:
    """Exit code (negative: the signal that ended it) and output of a child process that computes in bf16."""
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", PROBE],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JobFailed(f"trying bf16 in a child process took more than {_TIMEOUT} s") from error
    return ended.returncode, ended.stdout


def _introduction() -> str:
    """What oneDNN prints about itself in this process; it does so once, and not through `sys.stdout`."""
    flush = ctypes.CDLL(None).fflush
    flush(None)
    stdout = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with torch.inference_mode(), mkldnn.verbose(mkldnn.VERBOSE_ON):
                nn.Conv2d(3, 64, 3)(torch.ones(8, 3, 32, 32))
            flush(None)
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
        file.seek(0)
        return file.read().decode()


def _instructions(introduction: str) -> str | None:
    found = re.search(r"cpu,isa:(.*)", introduction)
    return found[1] if found else None
