"""From the results of the networks to those of the study: one tidy table, tests of each set and pooled ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ghost_ray import metrics, published, significance
from ghost_ray.config.study_settings import StudyConfig
from ghost_ray.files import join, read_json
from ghost_ray.jobs.audit.audit_summary import AuditFigures, AuditSummary
from ghost_ray.jobs.evaluate.findings import Evaluation, Significance
from ghost_ray.jobs.study.network_jobs import NetworkJobs, Pair
from ghost_ray.report.study.study_findings import (
    Beside,
    Cell,
    Failed,
    GroupMean,
    NetworkFindings,
    NetworkTest,
    PooledTest,
    Study,
)
from ghost_ray.scorers import is_rival

REFERENCE = "ghost"
_AUDIT_FIELDS = ("tests", "rejected", "rejected_fraction", "degenerate", "alpha", "family", "median_n", "verdict")
Draws = dict[str, dict[str, npt.NDArray[np.float64]]]  # method → metric → [J]


@dataclass
class Collected:
    """What was read of one network."""

    findings: NetworkFindings
    cells: list[Cell]
    drawn: dict[str, Draws] = field(default_factory=dict)  # by unknown set
    shares: dict[str, float] = field(default_factory=dict)  # of the rows that a draw takes, by unknown set
    rivals: set[str] = field(default_factory=set)  # of GHOST, among the methods


def collect(jobs: NetworkJobs) -> Collected:
    """Read the cells that the study asks for from the network's evaluations."""
    wanted = jobs.cells()
    sources = _sources(wanted, jobs.evaluations())
    pages = {name: join(jobs.folder, name) for name in sources}
    evaluations: dict[str, Evaluation] = {name: read_json(join(at, "metrics.json")) for name, at in pages.items()}
    tests: dict[str, Significance] = {name: read_json(join(at, "significance.json")) for name, at in pages.items()}
    taken = {pair: name for name, pairs in sources.items() for pair in pairs}
    rows = {(r["method"], r["unknown"], name): r for name, e in evaluations.items() for r in e["results"]}
    drawn: dict[str, Draws] = {}
    stds: dict[tuple[str, str, str], float | None] = {}
    for name, content in tests.items():
        for values in content["values"]:
            method, unknown = values["method"], values["unknown"]
            if taken.get((method, unknown)) == name:
                found = np.array([np.nan if v is None else v for v in values["values"]], float)
                drawn.setdefault(unknown, {}).setdefault(method, {})[values["metric"]] = found
                stds[method, unknown, values["metric"]] = values["std"]
    cells: list[Cell] = [
        {
            "network": jobs.name,
            "unknown": unknown,
            "method": method,
            "metric": metric.field,
            "value": metric.read(rows[method, unknown, taken[method, unknown]]),
            "std": stds.get((method, unknown, metric.field)),
        }
        for method, unknown in wanted
        for metric in metrics.registered()
    ]
    first = next(iter(evaluations.values()))
    unknowns = {u: n for e in evaluations.values() for u, n in e["unknowns"].items()}
    negative = {u: n for e in evaluations.values() for u, n in e["negative_top_logits"].items()}
    sets = list(dict.fromkeys(unknown for _, unknown in wanted))
    findings: NetworkFindings = {
        "name": jobs.name,
        "model": first["network"],
        "closed_set_accuracy": first["closed_set_accuracy"],
        "knowns": first["knowns"],
        "classes": first["classes"],
        "dimensions": first["dimensions"],
        "unknowns": {name: unknowns[name] for name in sets},
        "negative_top_logits": {name: negative[name] for name in ("known", *sets)},
        "evaluations": {name: [list(pair) for pair in pairs] for name, pairs in sources.items()},
        "audit": _audit(read_json(join(jobs.folder, "audit", "summary.json"))),
        "notes": list(dict.fromkeys(note for e in evaluations.values() for note in e["notes"])),
    }
    size = next(iter(tests.values()))["draw_size"]
    known = significance.share_drawn(first["knowns"], size)
    shares = {name: max(known, significance.share_drawn(unknowns[name], size)) for name in sets}
    ordered = {u: {m: drawn[u][m] for m, other in wanted if other == u} for u in sets}
    rivals = {method for method, unknown, name in rows if is_rival(method, rows[method, unknown, name])}
    return Collected(findings, cells, ordered, shares, rivals)


def _sources(wanted: list[Pair], evaluations: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """The folder that each cell is read from: the first that has it."""
    found: dict[str, list[Pair]] = {}
    for pair in wanted:
        name = next(name for name, pairs in evaluations.items() if pair in pairs)
        found.setdefault(name, []).append(pair)
    return found


def _audit(summary: AuditSummary) -> AuditFigures:
    return {name: summary[name] for name in _AUDIT_FIELDS}  # type: ignore[literal-required, return-value]


def make_study(config: StudyConfig, networks: list[Collected], failed: list[Failed]) -> Study:
    """The content of results.json."""
    cells = [cell for network in networks for cell in network.cells]
    methods = list(dict.fromkeys(cell["method"] for cell in cells))
    return {
        "reference": REFERENCE,
        "methods": methods,
        "rivals": [method for method in methods if method in rivals_of(networks)],
        "unknowns": config.sets,
        "groups": {name: list(members) for name, members in config.groups.items()},
        "draws": config.draws,
        "draw_size": config.draw_size,
        "seed": config.seed,
        "alpha": significance.ALPHA,
        "networks": [network.findings for network in networks],
        "failed": failed,
        "results": cells,
        "group_means": _group_means(cells, config.groups),
        "tests": [test for network in networks for test in _tests(network)],
        "pooled": pooled_tests(networks),
        "published": _beside(networks),
        "notes": [f"{one.findings['name']}: {note}" for one in networks for note in one.findings["notes"]],
    }


def _group_means(cells: list[Cell], groups: Mapping[str, Iterable[str]]) -> list[GroupMean]:
    """Plain means; None where a set of the group has no value, and no line where the network lacks a set."""
    found = {(c["network"], c["method"], c["metric"], c["unknown"]): c["value"] for c in cells}
    averaged = [metric.field for metric in metrics.registered() if metric.averaged]
    pairs = list(dict.fromkeys((c["network"], c["method"]) for c in cells))
    means: list[GroupMean] = []
    for group, members in groups.items():
        for network, method in pairs:
            for metric in averaged:
                places = [(network, method, metric, member) for member in members]
                if all(place in found for place in places):
                    values = [found[place] for place in places]
                    known = [value for value in values if value is not None]
                    mean = float(np.mean(known)) if len(known) == len(values) else None
                    means.append(
                        {"network": network, "group": group, "method": method, "metric": metric, "value": mean}
                    )
    return means


def _tests(network: Collected) -> Iterable[NetworkTest]:
    for unknown, drawn in network.drawn.items():
        if REFERENCE in drawn and len(drawn) > 1:
            variants = [method for method in drawn if method not in network.rivals]
            for test in significance.compare_drawn(drawn, REFERENCE, network.shares[unknown], variants=variants):
                yield {"network": network.findings["name"], "unknown": unknown, **test}


def pooled_tests(networks: list[Collected]) -> list[PooledTest]:
    """Each method against GHOST over all sets of a network, and over all sets of all networks.

    Only cells that both have are paired. A network alone is tested where it has two sets; all together, where there
    are two networks.
    """
    scopes: list[tuple[str | None, list[Collected]]] = [(None, networks)] if len(networks) > 1 else []
    scopes += [(network.findings["name"], [network]) for network in networks if len(network.drawn) > 1]
    found: list[PooledTest] = []
    for name, members in scopes:
        for over in ("sets", "draws"):
            found += _pooled(name, members, over)
    return found


def _pooled(name: str | None, networks: list[Collected], over: str) -> list[PooledTest]:
    whole = {(c["network"], c["unknown"], c["method"], c["metric"]): c["value"] for n in networks for c in n.cells}
    places = [(network, unknown) for network in networks for unknown in network.drawn]
    methods = list(dict.fromkeys(m for network in networks for drawn in network.drawn.values() for m in drawn))
    share = max(network.shares[unknown] for network, unknown in places) if over == "draws" else 0.0
    tests: list[PooledTest] = []
    for metric in metrics.tested():
        family: list[PooledTest] = []
        for method in methods:
            both = [(n, u) for n, u in places if {method, REFERENCE} <= n.drawn[u].keys()]
            if method == REFERENCE or not both:
                continue
            mine, theirs = (
                np.concatenate(
                    [n.drawn[u][which][metric.field] for n, u in both]
                    if over == "draws"
                    else [_value(whole[n.findings["name"], u, which, metric.field]) for n, u in both]
                )
                for which in (method, REFERENCE)
            )
            if len(mine) < 2:
                continue
            t, p, note = significance.paired_test(mine, theirs, share)
            family.append(
                {
                    "network": name,
                    "over": over,
                    "pairs": len(mine),
                    "method": method,
                    "metric": metric.field,
                    "difference": significance.mean_of(mine - theirs),
                    "t": t,
                    "p": p,
                    "p_bonferroni": p,
                    "significant": False,
                    "note": note,
                }
            )
        rivals = rivals_of(networks)
        tests += _corrected([test for test in family if test["method"] in rivals])
        tests += _corrected([test for test in family if test["method"] not in rivals])
    return tests


def rivals_of(networks: list[Collected]) -> set[str]:
    """The methods that are compared with GHOST, of all networks."""
    return {method for network in networks for method in network.rivals}


def _value(value: float | None) -> npt.NDArray[np.float64]:
    return np.array([np.nan if value is None else value])


def _corrected(family: list[PooledTest]) -> list[PooledTest]:
    """Bonferroni over a family: the rivals, or the variants of GHOST among themselves."""
    corrected = significance.bonferroni([test["p"] for test in family])
    return [
        {**test, "p_bonferroni": p, "significant": p < significance.ALPHA}
        for test, p in zip(family, corrected, strict=True)
    ]


def _beside(networks: list[Collected]) -> list[Beside]:
    """The paper's numbers for the networks and sets that it has."""
    found: list[Beside] = []
    for network in networks:
        name, model = network.findings["name"], network.findings["model"]
        paper = published.network_named(model) or published.network_named(name)
        if paper is None:
            continue
        audited = published.find(network=paper, metric="rejected_fraction")
        for number in audited[:1]:
            rate = network.findings["audit"]["rejected_fraction"]
            found.append(_line(name, None, None, "rejected_fraction", rate, number))
        for cell in network.cells:
            published_number = published.lookup(paper, cell["unknown"], cell["method"], cell["metric"])
            if published_number is not None and cell["value"] is not None:
                place = (name, cell["unknown"], cell["method"], cell["metric"])
                found.append(_line(*place, cell["value"], published_number))
    return found


def _line(
    network: str, unknown: str | None, method: str | None, metric: str, here: float, number: published.Published
) -> Beside:
    return {
        "network": network,
        "unknown": unknown,
        "method": method,
        "metric": metric,
        "here": here,
        "paper": number.value,
        "difference": here - number.value,
        "rounding": number.half_unit,
        "source": number.source,
        "caveats": [caveat.text for caveat in number.caveats],
    }
