"""GHOST as an estimator: fitted on arrays, scoring arrays, kept in the format of ``ghost-ray fit``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ghost_ray.arrays.given import Array, GivenRows, given_rows, like, matrix
from ghost_ray.checks import of_set
from ghost_ray.cluster import threads
from ghost_ray.cluster.check_sample import look_at
from ghost_ray.config import FitConfig
from ghost_ray.errors import InputError, redact
from ghost_ray.files import OutputFolder
from ghost_ray.files.manifest import Data, Network, provenance
from ghost_ray.gaussians import Accumulator, Gaussians, ghost_score
from ghost_ray.jobs.fit import fit_store
from ghost_ray.jobs.score import keeping_knowns, rejecting_unknowns
from ghost_ray.model import ModelManifest, Threshold, write_model, write_threshold
from ghost_ray.progress import quietly
from ghost_ray.registry import load as load_version
from ghost_ray.rows import Rows
from ghost_ray.store import UNKNOWN

if TYPE_CHECKING:
    import pandas as pd

ARRAYS = "arrays"  # where the rows of a model made of arrays came from, in its manifest


class Ghost:
    """One Gaussian per class and dimension; γ = top logit over the summed z-scores. Higher is more known.

    Parameters
    ----------
    model : str, default "imported"
        Name of the network, recorded when the fit is saved. Results with different names cannot be combined.
    class_names : sequence of str, optional
        Names of the K classes in the order of the logits.

    Attributes
    ----------
    gaussians_ : Gaussians
        ``mean`` and ``std`` [K, D] float32, ``count`` [K] int64: the number of rows of each class.
    notes_ : list of str
        Mistakes that the rows reveal, one sentence each: labels that do not match the predictions, values that are not
        logits.
    threshold_ : float or None
        Accept scores at or above it; chosen by `threshold`, or stored with a model that was loaded.

    Examples
    --------
    >>> import numpy as np
    >>> import ghost_ray
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 300)
    >>> features = 4 * np.eye(3, 8)[labels] + rng.standard_normal((300, 8))
    >>> logits = features[:, :3]
    >>> ghost = ghost_ray.Ghost().fit(features, labels, logits)
    >>> theta = ghost.threshold(accept_known=0.95, features=features, logits=logits)
    >>> float(np.mean(ghost.score(features, logits) >= theta))
    0.95
    """

    gaussians_: Gaussians
    notes_: list[str]
    threshold_: float | None
    _network: Network
    _data: list[Data]

    def __init__(self, model: str = "imported", class_names: Sequence[str] | None = None) -> None:
        self.model = model
        self.class_names = class_names

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's parameters, as scikit-learn requires."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor."""
        for name, value in params.items():
            if name not in self.get_params():
                raise InputError(name, value, f"is not a parameter; the parameters are {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def fit(self, features: Array, labels: Array, logits: Array | None = None, *, predictions: Array = None) -> Self:
        """Fit the Gaussians of the correctly classified rows.

        Parameters
        ----------
        features : array of shape [N, D]
            Numpy, or torch on any device. Worked on as float32, accumulated in float64.
        labels : array of shape [N]
            Class indices or names; −1 = unknown, which adds nothing.
        logits : array of shape [N, K], optional
        predictions : array of shape [N], optional
            Class indices, instead of logits. K is then one more than the highest index, or that of `class_names`.

        Raises
        ------
        InputError
            If an array has the wrong shape or type, holds a NaN, or no class has two rows to fit.
        """
        rows = given_rows(features, labels, logits, predictions, self.class_names)
        store = rows.store(self.model, "features")
        with quietly(), threads():
            statistics = fit_store(store)
            notes = of_set(look_at(store)) if rows.logits is not None else []
        if not (statistics.count >= 2).any():
            raise InputError("labels", "", _nothing_to_fit(rows), "are the labels those of these rows?")
        self._network, self._data = store.manifest.network, store.manifest.data
        self._keep(statistics.finish(), statistics, rows.class_names, notes)
        return self

    def _keep(
        self,
        gaussians: Gaussians,
        statistics: Accumulator | None,
        class_names: list[str] | None,
        notes: list[str],
        choice: Threshold | None = None,
    ) -> None:
        self.gaussians_, self._statistics, self._class_names = gaussians, statistics, class_names
        self.notes_ = notes
        self._choice = choice
        self.threshold_ = None if choice is None else float(choice["threshold"])

    def _fitted(self) -> Gaussians:
        if not hasattr(self, "gaussians_"):
            raise InputError("Ghost", "", "is not fitted", "call fit, or Ghost.load")
        return self.gaussians_

    def score(self, features: Array, logits: Array) -> Any:
        """γ of each row, [M] float64: finite, or −inf where the predicted class has no Gaussian.

        Tensors give a tensor on their device; the numbers are those of ``ghost-ray score``.
        """
        return like(self._gamma(features, logits)[0], features)

    def _gamma(self, features: Array, logits: Array) -> tuple[np.ndarray, np.ndarray]:
        """γ and the prediction of each row."""
        gaussians = self._fitted()
        classes, dimensions = gaussians.mean.shape
        embedding = matrix(features, "features", dimensions)
        scores = matrix(logits, "logits", classes, rows=len(embedding))
        prediction = scores.argmax(axis=1)
        rows = Rows(np.full(len(embedding), UNKNOWN), prediction, embedding, scores)
        return ghost_score(rows, gaussians).gamma, prediction

    def threshold(
        self,
        *,
        features: Array,
        logits: Array,
        accept_known: float | None = None,
        accept_fpr: float | None = None,
    ) -> float:
        """Choose the threshold on knowns or on unknowns; it is kept, and saved with the model.

        Parameters
        ----------
        features, logits : arrays of shape [M, D] and [M, K]
            Known rows for `accept_known`, unknown ones for `accept_fpr`; not those of the fit.
        accept_known : float, optional
            The share of the known rows to accept.
        accept_fpr : float, optional
            The share of the unknown rows that may be accepted.
        """
        if (accept_known is None) == (accept_fpr is None):
            raise InputError("accept_known", "", "one of `accept_known` and `accept_fpr` is needed", "for example 0.95")
        field, share = ("accept_known", accept_known) if accept_known is not None else ("accept_fpr", accept_fpr)
        assert share is not None
        if not 0 <= share <= 1 or (field == "accept_known" and share == 0):
            raise InputError(field, share, "must be between 0 and 1", "for example 0.95")
        scores, _ = self._gamma(features, logits)
        choose = keeping_knowns if field == "accept_known" else rejecting_unknowns
        self._choice = {
            "threshold": choose(scores, share, ARRAYS),
            "rule": field.replace("_", "-"),
            "share": share,
            "store": ARRAYS,
            "rows": len(scores),
        }
        self.threshold_ = self._choice["threshold"]
        return self.threshold_

    def predict(self, features: Array, logits: Array) -> Any:
        """The predicted class of each accepted row, −1 for the others, [M] int64."""
        self._fitted()
        if self.threshold_ is None:
            raise InputError("threshold_", "", "no threshold was chosen yet", "call threshold(accept_known=0.95, …)")
        scores, prediction = self._gamma(features, logits)
        return like(np.where(scores >= self.threshold_, prediction, UNKNOWN), features)

    def save(self, out: str, *, overwrite: bool = False) -> None:
        """Write the model, and its threshold if one was chosen, as ``ghost-ray fit`` does."""
        gaussians = self._fitted()
        manifest = ModelManifest(
            **provenance(FitConfig(store=ARRAYS, out=str(out), overwrite=overwrite)),
            network=self._network,
            data=self._data,
            rows=int(gaussians.count.sum()),
            class_names=self._class_names,
            missing_classes=len(gaussians.missing),
            thin_classes=len(gaussians.thin),
            constant_dimensions=gaussians.constant,
            notes=self.notes_,
        )
        with OutputFolder(str(out), kind="model", overwrite=overwrite) as output:
            write_model(output.staging, gaussians, self._statistics, manifest)
            if self._choice is not None:
                write_threshold(output.staging, self._choice)
            output.publish()

    @classmethod
    def load(cls, uri: str) -> Ghost:
        """A model made by ``ghost-ray fit`` or `save`, or the current version of a registry."""
        loaded = load_version(str(uri)).model
        manifest = loaded.manifest
        if manifest.network.restricted_to is not None:
            kept = len(manifest.network.restricted_to)
            problem = f"keeps {kept} classes of a larger head; the logits would need the same selection"
            raise InputError("uri", redact(str(uri)), problem, "use ghost_ray.load or OpenSetClassifier.from_model")
        ghost = cls(manifest.network.name, manifest.class_names)
        ghost._network, ghost._data = manifest.network, manifest.data
        ghost._keep(loaded.gaussians, loaded.statistics(), manifest.class_names, manifest.notes, loaded.thresholds())
        return ghost

    def to_pandas(self) -> pd.DataFrame:
        """One row per class: its name, its number of rows, and what is special about it."""
        import pandas as pd

        gaussians = self._fitted()
        classes = len(gaussians.count)
        constant = np.where(gaussians.present, (gaussians.std == 0).sum(axis=1), 0)
        columns = {
            "class": np.arange(classes),
            "name": self._class_names or [str(k) for k in range(classes)],
            "n": gaussians.count,
            "has_gaussian": gaussians.present,
            "constant_dimensions": constant,
        }
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value is not None)
        return f"Ghost({given})"

    def _repr_html_(self) -> str:
        if not hasattr(self, "gaussians_"):
            return f"<code>{escape(repr(self))}</code>, not fitted"
        gaussians = self.gaussians_
        facts = {
            "Network": self.model,
            "Classes": f"{len(gaussians.count):,}",
            "Dimensions": f"{gaussians.mean.shape[1]:,}",
            "Correctly classified rows": f"{int(gaussians.count.sum()):,}",
            "Classes without a Gaussian": f"{len(gaussians.missing):,}",
            "Threshold": "none chosen" if self.threshold_ is None else f"{self.threshold_:.6g}",
        }
        lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table>{lines}</table>" + "".join(f"<p>{escape(note)}</p>" for note in self.notes_)


def fit(
    features: Array,
    labels: Array,
    logits: Array | None = None,
    *,
    predictions: Array = None,
    model: str = "imported",
    class_names: Sequence[str] | None = None,
) -> Ghost:
    """Fit GHOST on arrays: ``Ghost(model, class_names).fit(features, labels, logits)``."""
    return Ghost(model, class_names).fit(features, labels, logits, predictions=predictions)


def _nothing_to_fit(rows: GivenRows) -> str:
    correct = int((rows.labels == rows.predictions).sum())
    return f"no class has two correctly classified rows: {correct:,} of {len(rows.labels):,} are predicted as labelled"
