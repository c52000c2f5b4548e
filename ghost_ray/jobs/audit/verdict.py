"""What the rate of rejections means, beside the four networks of the paper."""

from __future__ import annotations

from ghost_ray import published

_PUBLISHED = sorted(published.find(metric="rejected_fraction"), key=lambda number: number.value)
# Share of class × dimension tests that reject normality (Holm, α = 0.05); GHOST did worst on the last.
PAPER_RATES = {published.title(number.network): number.value for number in _PUBLISHED}
_WORST = list(PAPER_RATES)[-1]
_EVALUATE_FIRST = "evaluate it on your own unknowns before adopting it"
PAPER_CAVEATS = list(dict.fromkeys(caveat.text for number in _PUBLISHED for caveat in number.caveats))
_PAPER_ALPHA = 0.05
# ImageNet has about a thousand training samples per class; with far fewer, Holm detects little.
_POWERFUL_N = 500
# If more than this is rejected, the note about low power is not needed.
_FEW = 0.05


def verdict(rate: float, tests: int, alpha: float, family: str, median_n: float) -> str:
    """One sentence: the rate, where it stands among the paper's networks, and what to do."""
    scope = "all tests as one family" if family == "all" else "one family per class"
    many = "test rejects" if tests == 1 else "tests reject"
    text = f"{percent(rate)} of {tests:,} {many} normality (Holm, α = {alpha:g}, {scope}): {_place(rate)}"
    if alpha != _PAPER_ALPHA:
        text += f"; the paper’s rates are those at α = {_PAPER_ALPHA:g}"
    if median_n < _POWERFUL_N and rate < _FEW:
        text += f"; but with {median_n:,.0f} samples per class only large deviations can be detected"
    return text + "."


def _place(rate: float) -> str:
    # Compare the rounded numbers that a reader sees.
    same = [name for name, value in PAPER_RATES.items() if percent(value) == percent(rate)]
    below = [name for name, value in PAPER_RATES.items() if value < rate]
    above = [name for name, value in PAPER_RATES.items() if value > rate]
    if same == [_WORST]:
        return f"as many as {_named(_WORST)}, on which GHOST did worst in the paper; {_EVALUATE_FIRST}"
    if same:
        return f"as many as {_named(same[0])}, a network on which GHOST did well in the paper; GHOST may be adopted"
    if not above:
        return f"more than {_named(_WORST)}, the network on which GHOST did worst in the paper; {_EVALUATE_FIRST}"
    if not below:
        return f"fewer than {_named(above[0])}, the most normal network of the paper; GHOST may be adopted"
    between = f"between {_named(below[-1])} and {_named(above[0])}"
    if above == [_WORST]:
        return f"{between}, on which GHOST did worst in the paper; adopt it with an evaluation beside it"
    return f"{between}, networks on which GHOST did well in the paper; GHOST may be adopted"


def _named(network: str) -> str:
    return f"{network} ({percent(PAPER_RATES[network])})"


def percent(rate: float) -> str:
    """A share for people: ``2.79 %``, and never ``0.00 %`` for a value that is not zero."""
    return f"{100 * rate:.2f} %" if rate == 0 or rate >= 5e-5 else f"{100 * rate:.1g} %"
