"""bf16 on a CPU that may not allow it, in processes of their own: whatever happens to them, the tests continue."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's instruction sets are those of x86")

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)\n"
# As on a machine where the widest instructions are trapped: narrowed to those of every x86, it lives.
DIES_UNLESS_NARROWED = f"import os\nif os.environ.get('ONEDNN_MAX_CPU_ISA') != 'SSE41':\n    {DIES}"
USED = "torch.nn.Conv2d(3, 64, 3)(torch.ones(8, 3, 32, 32))"
TRIES = "cpu_bf16.ensure_bf16()"
LOADS = "load_backbone('test_vit', device='cpu', precision='bf16')"


def run(probe: str, *statements: str) -> list[str]:
    """The lines that a process prints in which the child that tries bf16 runs ``probe`` first."""
    body = "\n    ".join(statements)
    code = f"""
import os, torch
from ghost_ray.backbone import cpu_bf16, load_backbone
from ghost_ray.errors import InputError
cpu_bf16.PROBE, cpu_bf16.NARROWED = {probe!r} + cpu_bf16.PROBE, "SSE41"
try:
    {body}
except InputError as error:
    print(error)
print(os.environ.get("ONEDNN_MAX_CPU_ISA"))
"""
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def test_a_network_is_refused_where_bf16_ends_every_process() -> None:
    assert run(DIES, LOADS) == ["precision 'bf16': ends a process on this CPU with SIGILL — use fp32", "None"]


def test_instructions_are_narrowed_where_that_helps() -> None:
    *layer, setting = run(DIES_UNLESS_NARROWED, TRIES, f"with torch.backends.mkldnn.verbose(1): {USED}")
    assert setting == "SSE41"
    assert any("exec,cpu,convolution" in line for line in layer)
    assert not any("avx" in line for line in layer)


def test_it_is_too_late_to_narrow_once_torch_was_used() -> None:
    refusal, setting = run(DIES_UNLESS_NARROWED, USED, TRIES)
    assert "with SIGILL, and this one has used torch before" in refusal
    assert refusal.endswith("set ONEDNN_MAX_CPU_ISA=SSE41 before Python starts, or use fp32")
    assert setting == "None"
