"""Networks × sets at a glance: who leads, by how much, and whether that is significant."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray import metrics
from ghost_ray.metrics import Metric
from ghost_ray.report.document import Cell, Number, Table
from ghost_ray.report.numbers import decimal, percent, plural, signed, text_cell
from ghost_ray.report.study.lookup import GHOST, Cells, network_title, title_of, unknown_title
from ghost_ray.report.study.study_findings import Study

AUOSCR = "auoscr"


@dataclass(frozen=True)
class Duel:
    """GHOST against the rival that does best on one set of one network, in AUOSCR."""

    network: str
    unknown: str
    ghost: float
    rival: str
    best: float
    proven: bool | None  # None: not tested

    @property
    def lead(self) -> float:
        return self.ghost - self.best

    @property
    def ahead(self) -> bool:
        return self.lead > 0


def metric_named(field: str) -> Metric:
    """A registered metric."""
    return next(metric for metric in metrics.registered() if metric.field == field)


def duels(cells: Cells) -> list[Duel]:
    """One per network and set in which GHOST and a rival were measured."""
    study = cells.study
    proven = {
        (test["network"], test["unknown"], test["method"]): test["significant"]
        for test in study["tests"]
        if test["metric"] == AUOSCR
    }
    found = []
    for network in study["networks"]:
        for unknown in network["unknowns"]:
            mine = cells.value(network["name"], unknown, GHOST, AUOSCR)
            rival = cells.best_rival(network["name"], unknown, metric_named(AUOSCR))
            if mine is not None and rival is not None:
                known = proven.get((network["name"], unknown, rival[0]))
                found.append(Duel(network["name"], unknown, mine, *rival, known))
    return found


def verdict(cells: Cells) -> str:
    """One sentence or two about the whole study."""
    study = cells.study
    found = duels(cells)
    counted = f"{plural(len(study['networks']), 'network')} and {plural(len(study['unknowns']), 'unknown set')}"
    if not found:
        return f"{plural(len(study['methods']), 'method')} measured on {counted}."
    ahead = sum(duel.ahead for duel in found)
    sure = sum(duel.ahead and bool(duel.proven) for duel in found)
    lost = sum(duel.lead < 0 and bool(duel.proven) for duel in found)
    cases = plural(len(found), "case")
    text = f"{counted.capitalize()}: GHOST has a higher AUOSCR than every rival in {ahead} of {cases}"
    if any(duel.proven is not None for duel in found):
        text += f"; paired tests find its lead over the best rival significant in {sure}"
        text += f", and its deficit in {lost}" if lost else ""
    best = _best_network(cells)
    if best is not None:
        name, value = best
        text += f". The highest mean AUOSCR of GHOST is {decimal(value)}, of {name}"
    return f"{text}."


def _best_network(cells: Cells) -> tuple[str, float] | None:
    """The network with the highest mean AUOSCR of GHOST, where several have the same sets and no two look the same."""
    networks = cells.study["networks"]
    if len(networks) < 2 or len({tuple(network["unknowns"]) for network in networks}) > 1:
        return None
    means = {network_title(n): value for n in networks if (value := cells.mean(n["name"], GHOST, AUOSCR)) is not None}
    if len(means) < len(networks):
        return None
    name = max(means, key=means.__getitem__)
    equal = [other for other in means.values() if decimal(other) == decimal(means[name])]
    return (name, means[name]) if len(equal) == 1 else None


def numbers(cells: Cells) -> list[Number]:
    """Three numbers to take away."""
    found = duels(cells)
    networks = cells.study["networks"]
    accuracies = [network["closed_set_accuracy"] for network in networks]
    rates = [network["audit"]["rejected_fraction"] for network in networks]
    shown = [
        Number(_spread(accuracies, 1), "closed-set accuracy", f"of {plural(len(networks), 'network')}"),
        Number(_spread(rates, 2), "of tests reject normality", "the lower, the better GHOST’s assumption holds"),
    ]
    if found:
        ahead = sum(duel.ahead for duel in found)
        note = "AUOSCR above every rival’s, by network and unknown set"
        shown.insert(0, Number(f"{ahead} of {len(found)}", "cases in which GHOST leads", note))
    return shown


def _spread(shares: list[float], digits: int) -> str:
    low, high = percent(min(shares), digits), percent(max(shares), digits)
    return low if low == high else f"{low} – {high}"


def glance_table(cells: Cells) -> Table | None:
    """One row per network, one column per unknown set."""
    found = {(duel.network, duel.unknown): duel for duel in duels(cells)}
    if not found:
        return None
    study = cells.study
    sets = [name for name in study["unknowns"] if any(unknown == name for _, unknown in found)]
    rows = [
        [text_cell(network_title(network)), *(_cell(found.get((network["name"], name))) for name in sets)]
        for network in study["networks"]
    ]
    return Table(
        id="study-glance",
        title="Who leads",
        caption="The method with the highest AUOSCR among GHOST and its rivals; GHOST’s AUOSCR minus that of the best "
        f"rival; and whether a paired test over {study['draws']} draws, after Bonferroni’s correction, finds that "
        "difference significant, in which case the method is bold.",
        columns=["Network", *map(unknown_title, sets)],
        rows=rows,
    )


def _cell(duel: Duel | None) -> Cell:
    if duel is None:
        return Cell("–")
    leader = "GHOST" if duel.ahead else title_of(duel.rival) if duel.lead < 0 else f"GHOST and {title_of(duel.rival)}"
    rival = f"over {title_of(duel.rival)}" if duel.ahead else f"against {title_of(duel.rival)}"
    words = {None: "not tested", True: "more than chance", False: "may be chance"}
    lines = [
        Cell(leader, duel.lead, best=bool(duel.proven)),
        Cell(f"{signed(duel.lead, 4)} {rival}"),
        Cell(words[duel.proven]),
    ]
    return Cell("", duel.lead, lines=lines)


def study_facts(study: Study) -> list[tuple[str, str]]:
    """What was compared."""
    return [
        ("Networks", ", ".join(map(network_title, study["networks"]))),
        ("Unknown sets", ", ".join(map(unknown_title, study["unknowns"]))),
        ("Methods", ", ".join(map(title_of, study["methods"]))),
        *((f"Group {name}", ", ".join(map(unknown_title, members))) for name, members in study["groups"].items()),
    ]
