"""What the rate of rejections means, beside the four networks of the paper."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ghost_ray import published
from ghost_ray.normality import shapiro_wilk

_PUBLISHED = sorted(published.find(metric="rejected_fraction"), key=lambda number: number.value)
# Share of class × dimension tests that reject normality (Holm, α = 0.05); GHOST did worst on the last.
PAPER_RATES = {published.title(number.network): number.value for number in _PUBLISHED}
_WORST = list(PAPER_RATES)[-1]
PAPER_CAVEATS = list(dict.fromkeys(caveat.text for number in _PUBLISHED for caveat in number.caveats))
_PAPER_ALPHA = 0.05
_DECIDES = (
    "The rate grows with the samples per class, which the paper does not state; whether GHOST suits this network is "
    "decided by an evaluation on your own unknowns."
)


def verdict(
    rate: float, alpha: float, family: str, n: npt.NDArray[np.int64], tests: npt.NDArray[np.int64], median_W: float
) -> str:
    """How normal the features are, where that stands among the paper's networks, and what it does not decide.

    Parameters
    ----------
    n, tests : array of shape [K]
        Samples and tests of each class.
    """
    scope = f"Holm, α = {alpha:g}, {'all tests as one family' if family == 'all' else 'one family per class'}"
    many = "test rejects" if tests.sum() == 1 else "tests reject"
    samples = f"{np.median(n[tests > 0]):,.0f} samples per class"
    if _powerless(alpha, family, n, tests):
        which = "The one test" if tests.sum() == 1 else f"None of {tests.sum():,} tests"
        could = "could not" if tests.sum() == 1 else "could"
        return (
            f"{which} {could} have rejected normality, whatever the features are ({scope}): {samples} are too few rows "
            "to tell how normal they are. Audit more rows, and evaluate GHOST on your own unknowns."
        )
    text = (
        f"{percent(rate)} of {tests.sum():,} {many} normality ({scope}), with a median W of {median_W:.3f} at {samples}"
    )
    text += f": {_place(rate)}"
    if alpha != _PAPER_ALPHA:
        text += f"; the paper’s rates are those at α = {_PAPER_ALPHA:g}"
    return f"{text}. {_DECIDES}"


def _powerless(alpha: float, family: str, n: npt.NDArray[np.int64], tests: npt.NDArray[np.int64]) -> bool:
    """Whether even the least normal samples of these sizes, all equal but one, pass Holm's first step."""
    in_family = np.full(len(tests), tests.sum()) if family == "all" else tests
    pairs = {(int(n[k]), int(in_family[k])) for k in np.flatnonzero(tests)}
    # Beyond a hundred samples the smallest p is below 1e-21: no family is that large.
    return all(size <= 100 and _smallest_p(size) > alpha / members for size, members in pairs)


def _smallest_p(n: int) -> float:
    return float(shapiro_wilk(np.eye(1, n).T)[1][0])


def _place(rate: float) -> str:
    # Compare the rounded numbers that a reader sees.
    same = [name for name, value in PAPER_RATES.items() if percent(value) == percent(rate)]
    below = [name for name, value in PAPER_RATES.items() if value < rate]
    above = [name for name, value in PAPER_RATES.items() if value > rate]
    if same:
        worst = ", on which GHOST did worst there" if same == [_WORST] else ""
        return f"as many as {_named(same[0])} in the paper{worst}"
    if not above:
        return f"more than {_named(_WORST)}, the network on which GHOST did worst in the paper"
    if not below:
        return f"fewer than {_named(above[0])}, the most normal of the paper’s {len(PAPER_RATES)} networks"
    worst = "; GHOST did worst on the latter" if above == [_WORST] else ""
    return f"between {_named(below[-1])} and {_named(above[0])} in the paper{worst}"


def _named(network: str) -> str:
    return f"{network} ({percent(PAPER_RATES[network])})"


def percent(rate: float) -> str:
    """A share for people: ``2.79 %``, and never ``0.00 %`` for a value that is not zero."""
    return f"{100 * rate:.2f} %" if rate == 0 or rate >= 5e-5 else f"{100 * rate:.1g} %"
