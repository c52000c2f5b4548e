"""What the rate of rejections means, beside the four networks of the paper."""

from __future__ import annotations

# Share of class × dimension tests that reject normality (Holm, α = 0.05); GHOST did worst on the last.
PAPER_RATES = {"Swin-T": 0.0056, "MAE-H": 0.0279, "ConvNeXtV2-H": 0.0313, "DenseNet-121": 0.0827}
# The paper's rates rest on about a thousand samples a class; with far fewer, Holm finds next to nothing.
_POWERFUL_N = 500


def verdict(rate: float, tests: int, alpha: float, family: str, median_n: float) -> str:
    """One sentence: the rate, where it stands among the paper's networks, and what to do."""
    scope = "all tests as one family" if family == "all" else "one family a class"
    text = f"{percent(rate)} of {tests:,} tests reject normality (Holm, α = {alpha:g}, {scope}): {_place(rate)}"
    if median_n < _POWERFUL_N:
        text += f"; but with {median_n:,.0f} samples a class only gross departures can be seen"
    return text + "."


def _place(rate: float) -> str:
    below = [name for name, value in PAPER_RATES.items() if value <= rate]
    above = [name for name, value in PAPER_RATES.items() if value > rate]
    if not above:
        return (
            f"more than {_named('DenseNet-121')}, the network on which GHOST did worst in the paper; "
            "evaluate it on your own unknowns before adopting it"
        )
    if not below:
        return f"fewer than {_named(above[0])}, the most normal network of the paper; GHOST may be adopted"
    between = f"between {_named(below[-1])} and {_named(above[0])}"
    if above == ["DenseNet-121"]:
        return f"{between}, on which GHOST did worst in the paper; adopt it with an evaluation beside it"
    return f"{between}, networks on which GHOST did well in the paper; GHOST may be adopted"


def _named(network: str) -> str:
    return f"{network} ({percent(PAPER_RATES[network])})"


def percent(rate: float) -> str:
    """A share as a person writes it: ``2.79 %``, and never ``0.00 %`` for what is not zero."""
    return f"{100 * rate:.2f} %" if rate == 0 or rate >= 5e-5 else f"{100 * rate:.1g} %"
