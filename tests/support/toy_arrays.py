"""Arrays as a researcher has them, and the same rows as the commands see them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghost_ray.config import ImportConfig
from ghost_ray.jobs.importing import run as import_run
from support.stores import Toy

Labelled = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class ToyArrays:
    """Training, known and unknown rows of one made-up network, in no order."""

    fit: Labelled  # features, labels, logits
    known: Labelled
    unknown: dict[str, tuple[np.ndarray, np.ndarray]]  # features, logits
    head: tuple[np.ndarray, np.ndarray]

    @classmethod
    def make(cls, seed: int = 3, classes: int = 5, dimensions: int = 12) -> ToyArrays:
        rng = np.random.default_rng(seed)
        toy = Toy.make(rng, classes, dimensions, spread=0.9)

        def labelled(rows: int) -> Labelled:
            features, labels = toy.known(rng, rows)
            mixed = rng.permutation(rows)
            return features[mixed], labels[mixed], toy.logits(features[mixed])

        def unlabelled(rows: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
            features = toy.unknown(rng, rows, spread)
            return features, toy.logits(features)

        unknown = {"near": unlabelled(300, 1.2), "far": unlabelled(250, 4.0)}
        return cls(labelled(900), labelled(400), unknown, (toy.weight, toy.bias))

    def write(self, folder: Path, *, with_head: bool = True) -> dict[str, str]:
        """Import every set with ``ghost-ray import``; the stores by name."""
        np.savez(folder / "head.npz", weight=self.head[0], bias=self.head[1])
        stores = {}
        for name, (features, labels, logits) in {"fit": self.fit, "known": self.known}.items():
            np.savez(folder / f"{name}.npz", features=features, labels=labels, logits=logits)
            stores[name] = self._import(folder, name, with_head)
        for name, (features, logits) in self.unknown.items():
            np.savez(folder / f"{name}.npz", features=features, logits=logits)
            stores[name] = self._import(folder, name, with_head, unknown=True)
        return stores

    def _import(self, folder: Path, name: str, with_head: bool, *, unknown: bool = False) -> str:
        file, out = str(folder / f"{name}.npz"), str(folder / f"store-{name}")
        head = str(folder / "head.npz") if with_head else None
        labels = None if unknown else file
        import_run(ImportConfig(features=file, logits=file, labels=labels, head=head, out=out, unknown=unknown))
        return out
