"""A simulated network: class Gaussians, a linear head, and rows as a store would give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ghost_ray.rows import Head, Rows


@dataclass(frozen=True)
class Network:
    """Training, known and unknown rows of one network, with its head."""

    head: Head
    train: Rows
    known: Rows
    unknown: Rows

    def batch(self, embedding: np.ndarray, label: np.ndarray, first_id: int) -> Rows:
        return make_batch(self.head, embedding, label, first_id)


def make_batch(head: Head, embedding: np.ndarray, label: np.ndarray, first_id: int = 0) -> Rows:
    embedding = np.asarray(embedding, np.float32)
    logits = head.logits(embedding)
    row_id = np.arange(first_id, first_id + len(embedding), dtype=np.uint64)
    return Rows(np.asarray(label, np.int64), logits.argmax(1), embedding, logits, row_id)


def make_network(classes: int = 5, dim: int = 12, per_class: int = 60, signed: bool = False, seed: int = 0) -> Network:
    """Features around class means, ReLU-like unless ``signed``; the head reads off the means, imperfectly."""
    rng = np.random.default_rng(seed)
    centres = rng.gamma(1.0, 2.0, (classes, dim)) * (rng.choice([-1, 1], (classes, dim)) if signed else 1)
    head = Head((centres - centres.mean(0)).astype(np.float32) / 6, rng.normal(0, 0.3, classes).astype(np.float32))

    def rows(label: np.ndarray) -> np.ndarray:
        features = centres[label] + rng.normal(0, 1.2, (len(label), dim))
        return features if signed else np.maximum(features, 0)

    train, known = np.repeat(np.arange(classes), per_class), np.repeat(np.arange(classes), 20)
    rng.shuffle(train)
    strange = rng.gamma(1.0, 1.5, (100, dim)) - (1.0 if signed else 0.0)
    return Network(
        head,
        make_batch(head, rows(train), train),
        make_batch(head, rows(known), known, 10_000),
        make_batch(head, strange, np.full(100, -1), 20_000),
    )


@pytest.fixture(scope="session")
def network() -> Network:
    return make_network()


@pytest.fixture(scope="session")
def network_of() -> Callable[..., Network]:
    return make_network


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., Rows]:
    return make_batch
