"""An actor computes on the GPU that it reserved, or says why it cannot."""

from __future__ import annotations

import pytest
import torch

from ghost_ray.backbone.devices import LOGICAL_GPUS, allow_tf32, reserved_device
from ghost_ray.errors import JobFailed


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOGICAL_GPUS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_is_not_there_is_not_replaced_by_a_cpu() -> None:
    with pytest.raises(JobFailed, match=rf"cannot be used: .*driver.*, torch {torch.__version__[:4]}.* needs .*CUDA"):
        reserved_device(1)
    assert reserved_device(0) == "cpu"


@pytest.mark.usefixtures("no_gpu")
def test_gpus_that_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOGICAL_GPUS, "1")
    assert reserved_device(1) == "cpu"


def test_a_gpu_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOGICAL_GPUS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert reserved_device(0.5) == "cuda"


def test_tf32_is_for_products_and_convolutions_alike() -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        for wanted in (True, False):
            allow_tf32(wanted)
            assert torch.backends.cuda.matmul.allow_tf32 is wanted
            assert torch.backends.cudnn.allow_tf32 is wanted
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
