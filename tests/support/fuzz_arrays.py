"""Broken files of every kind that ``import`` reads."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from pathlib import Path

import numpy as np

from support.array_files import WRITERS, Arrays
from support.fuzzing import Reading, Variants, mutated_bytes


def array_files(folder: Path) -> Variants:
    """The features' file of each kind, with the logits and labels as they should be."""
    from ghost_ray.config import ImportConfig
    from ghost_ray.jobs.importing import run

    arrays = Arrays.make(np.random.default_rng(0), rows=40)
    settings, originals = {}, {}
    for number, (kind, write) in enumerate(WRITERS.items()):
        place = folder / str(number)
        place.mkdir()
        files = write(place, arrays)
        path = Path(files["features"].partition("#")[0])
        if path.is_file():
            settings[kind] = ImportConfig(**files, out=str(folder / "store"), overwrite=True)
            originals[kind] = (path, path.read_bytes())

    def read(kind: str) -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        with contextlib.redirect_stderr(io.StringIO()):
            run(settings[kind])

    def make(rng: random.Random) -> Reading:
        for path, content in originals.values():
            path.write_bytes(content)
        kind = rng.choice(list(originals))
        path, content = originals[kind]
        path.write_bytes(mutated_bytes(content, rng))
        return lambda: read(kind)

    return make
