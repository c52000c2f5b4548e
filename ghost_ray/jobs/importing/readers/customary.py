"""What people call the arrays that an import needs."""

from __future__ import annotations

CUSTOMARY: dict[str, tuple[str, ...]] = {
    "features": ("features", "feature", "embeddings", "embedding", "feats", "feat", "fv", "f", "x"),
    "logits": ("logits", "logit", "outputs", "output", "scores", "z"),
    "labels": ("labels", "label", "targets", "target", "ground_truth", "gt", "truth", "classes", "class", "y"),
    "keys": ("keys", "key", "paths", "path", "files", "file", "filenames", "filename", "names", "name", "ids", "id"),
}


def means(name: str, field: str) -> bool:
    """Whether the name is a common one for ``field``; of a nested name, the last part counts."""
    return name.rpartition(".")[2].strip().lower() in CUSTOMARY[field]


def is_index(name: str) -> bool:
    """Whether a column only counts the rows, as pandas writes it."""
    return name in ("", "Unnamed: 0", "__index_level_0__")
