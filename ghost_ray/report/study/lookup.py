"""Access to a study's results: cells by place, titles as papers write them."""

from __future__ import annotations

from collections.abc import Iterable

from ghost_ray import published
from ghost_ray.metrics import Metric
from ghost_ray.report.study.study_findings import NetworkFindings, Study
from ghost_ray.scorers import is_rival, title_of

GHOST = "ghost"
Place = tuple[str, str, str, str]  # network, unknown set or group, method, metric


class Cells:
    """The values of a study by place; those of groups are under ``NAME (mean)``."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._values: dict[Place, float | None] = {
            (c["network"], c["unknown"], c["method"], c["metric"]): c["value"] for c in study["results"]
        }
        self._values |= {
            (m["network"], mean_of(m["group"]), m["method"], m["metric"]): m["value"] for m in study["group_means"]
        }
        self._stds = {(c["network"], c["unknown"], c["method"], c["metric"]): c["std"] for c in study["results"]}
        # 0.1 wrote no rivals.
        self.rivals = study.get("rivals", [method for method in study["methods"] if is_rival(method, {})])
        self._places = {place[:3] for place in self._values}

    def value(self, network: str, unknown: str, method: str, metric: str) -> float | None:
        return self._values.get((network, unknown, method, metric))

    def std(self, network: str, unknown: str, method: str, metric: str) -> float | None:
        return self._stds.get((network, unknown, method, metric))

    def methods(self, networks: Iterable[str]) -> list[str]:
        """The methods that any of the networks has."""
        wanted = set(networks)
        present = {method for network, _, method in self._places if network in wanted}
        return [method for method in self.study["methods"] if method in present]

    def rows(self, networks: Iterable[str]) -> list[str]:
        """The unknown sets, and then the groups, that any of the networks has."""
        wanted = set(networks)
        present = {unknown for network, unknown, _ in self._places if network in wanted}
        named = [*self.study["unknowns"], *map(mean_of, self.study["groups"])]
        return [name for name in named if name in present]

    def mean(self, network: str, method: str, metric: str) -> float | None:
        """The plain mean over the network's unknown sets; None if one has no value."""
        sets = [name for name in self.study["unknowns"] if (network, name, method) in self._places]
        values = [self.value(network, name, method, metric) for name in sets]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    def best_rival(self, network: str, unknown: str, metric: Metric) -> tuple[str, float] | None:
        """The rival that does best on a set, and its value."""
        values = {
            method: value
            for method in self.methods([network])
            if method in self.rivals and (value := self.value(network, unknown, method, metric.field)) is not None
        }
        if not values or metric.better is None:
            return None
        chosen = (max if metric.better == "high" else min)(values, key=values.__getitem__)
        return chosen, values[chosen]


def mean_of(group: str) -> str:
    """What the row of a group's means is called."""
    return f"{group} (mean)"


def network_title(network: NetworkFindings) -> str:
    """The study's name for a network, as the paper writes it where it is the paper's own."""
    return published.spelled(network["name"])


def unknown_title(name: str) -> str:
    """The study's name for a set, as the paper writes it where it is the paper's own: ``dtd`` is not "Textures"."""
    return published.spelled(name)


def beside_paper(unknown: str) -> str:
    """A set's name where the paper's number stands beside: with the paper's name for it, if that is another."""
    mine, paper = unknown_title(unknown), published.unknown_named(unknown)
    theirs = mine if paper is None else published.title(paper)
    return mine if mine == theirs else f"{mine} (the paper's {theirs})"


__all__ = ["GHOST", "Cells", "beside_paper", "mean_of", "network_title", "title_of", "unknown_title"]
