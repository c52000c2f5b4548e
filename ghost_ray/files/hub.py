"""Repositories of the Hugging Face hub: which version of one there is."""

from __future__ import annotations

import contextlib
import re

_REPOSITORY = re.compile(r"hf[-_]hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


def hub_version(model: str) -> str | None:
    """The commit that ``hf-hub:OWNER/NAME[@REVISION]`` stands for now; None for other names, and if it is unknown.

    One small request. Without an answer, the commit that this machine has a copy of, as loading it would take.
    """
    match = _REPOSITORY.fullmatch(model)
    if match is None:
        return None
    from huggingface_hub import HfApi, constants

    repository, revision = match[1], match[2]
    with contextlib.suppress(Exception):  # sockets, HTTP and JSON each have their own types
        return HfApi().model_info(repository, revision=revision, timeout=10).sha
    folder = f"models--{repository.replace('/', '--')}"
    with contextlib.suppress(OSError), open(f"{constants.HF_HUB_CACHE}/{folder}/refs/{revision or 'main'}") as handle:
        return handle.read().strip() or None
    return None
