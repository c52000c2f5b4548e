"""Whether a version may be promoted: its figures against fixed limits and against the current version's."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray.config.refit_settings import GatesSection
from ghost_ray.registry import AnsweredGate, Summary

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Gate:
    """One check of a version, and its result."""

    name: str
    value: float | None  # None: could not be measured
    limit: float
    text: str
    lowest: bool = False  # the limit is the lowest value that passes, not the highest

    @property
    def passed(self) -> bool:
        """A value that could not be measured does not pass."""
        if self.value is None:
            return False
        return (self.limit - self.value if self.lowest else self.value - self.limit) <= _ROUNDING

    def answered(self) -> AnsweredGate:
        """As a version's manifest keeps it."""
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "text": self.text,
            "passed": self.passed,
        }


def evaluate_gates(limits: GatesSection, new: Summary, old: Summary | None) -> list[Gate]:
    """The gates that apply to a version.

    Parameters
    ----------
    limits : GatesSection
        A limit of None is not checked.
    new, old : Summary
        Summaries of the version and of the current one (None if there is none): ``accuracy``, ``accuracy_on``,
        ``rejected_fraction``, ``auoscr`` by unknown set, ``classes_without_gaussian``, and ``threshold_problem``
        where no threshold could be chosen. Figures that only one of the two has are not compared.
    """
    gates: list[Gate] = []
    if limits.max_rejected_fraction is not None:
        gates.append(_rejected(new.get("rejected_fraction"), limits.max_rejected_fraction))
    if limits.max_classes_without_gaussian is not None:
        count, limit = new["classes_without_gaussian"], limits.max_classes_without_gaussian
        text = f"{count} classes without a Gaussian, {limit} allowed"
        gates.append(Gate("max_classes_without_gaussian", count, limit, text))
    if limits.min_accuracy is not None:
        gates.append(_floor("min_accuracy", "accuracy", new.get("accuracy"), limits.min_accuracy))
    if limits.min_auoscr is not None:
        gates += [
            _floor("min_auoscr", f"AUOSCR on {name}", value, limits.min_auoscr)
            for name, value in sorted((new.get("auoscr") or {}).items())
        ]
    if new.get("threshold_problem"):
        text = f"the share of knowns under accept_known {new['threshold_problem']}"
        gates.append(Gate("accept_known", None, 0, text))
    if old is None:
        return gates
    if limits.max_accuracy_drop is not None and new.get("accuracy_on") == old.get("accuracy_on"):
        was, is_now = old.get("accuracy"), new.get("accuracy")
        if was is not None and is_now is not None:
            gates.append(_drop("max_accuracy_drop", "accuracy", was, is_now, limits.max_accuracy_drop))
    if limits.max_auoscr_drop is not None:
        before, now = old.get("auoscr") or {}, new.get("auoscr") or {}
        gates += [
            _drop("max_auoscr_drop", f"AUOSCR on {name}", before[name], now[name], limits.max_auoscr_drop)
            for name in sorted(before.keys() & now.keys())
        ]
    return gates


def _rejected(value: float | None, limit: float) -> Gate:
    if value is None:
        text = "no normality test could be run"
    else:
        text = f"normality rejected in {value:.2%} of the tests, {limit:.2%} allowed"
    return Gate("max_rejected_fraction", value, limit, text)


def _floor(name: str, what: str, value: float | None, limit: float) -> Gate:
    text = f"no {what} could be measured" if value is None else f"{what} {value:.4f}, at least {limit:g} needed"
    return Gate(name, value, limit, text, lowest=True)


def _drop(name: str, what: str, before: float, now: float, limit: float) -> Gate:
    text = f"{what} {now:.4f} after {before:.4f}, a drop of {limit:g} allowed"
    return Gate(name, before - now, limit, text)
