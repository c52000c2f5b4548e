"""The paper's numbers in the package: complete by themselves, and equal to the paper's source where that is at hand."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from scipy import stats
from support import paper_source

from ghost_ray import published
from ghost_ray.published import Published
from ghost_ray.scorers import catalogue

SOURCE = Path(__file__).parents[3] / "shared" / "ghost_paper.tex"

COMPARED = "07e3f31819f2989f"

FOUR = ("21k-p-easy", "21k-p-hard", "ninco", "openimage-o")
EIGHT = (*FOUR, "places", "sun", "textures", "inaturalist")
BASE = ("ghost", "msp", "maxlogit", "nnguide")
FIVE = (*BASE, "energy")
THREE_METRICS = ("auoscr", "auroc", "fpr95")

# What each table must hold: table, networks, unknown sets, methods, metrics. Read off the paper by eye.
SHAPES = [
    ("table-1", ("mae-h", "convnextv2-h"), FOUR, BASE, THREE_METRICS),
    ("table-2", ("mae-h",), FOUR, FIVE, ("f_at_c95",)),
    ("table-3", ("mae-h",), FOUR, FIVE, ("ccr_cv",)),
    ("table-4", ("mae-h", "convnextv2-h"), EIGHT, FIVE, ("auroc_mean", "auroc_std")),
    ("table-4", ("mae-h", "convnextv2-h"), EIGHT, FIVE[1:], ("auroc_p",)),
    ("table-5", ("swin-t", "densenet-121"), FOUR, FIVE, THREE_METRICS),
    ("table-5", ("mae-h", "convnextv2-h"), FOUR, (*FIVE, "scale", "react", "knn"), THREE_METRICS),
    ("table-6", ("swin-t", "densenet-121"), FOUR, FIVE, ("f_at_c95", "ccr_cv")),
    ("table-6", ("mae-h", "convnextv2-h"), FOUR, (*FIVE, "scale"), ("f_at_c95", "ccr_cv")),
]

# Read off the paper by eye as well, a corner or so of every table: neither reader nor parser can mix up columns.
SAMPLES = [
    ("table-1", "mae-h", "21k-p-easy", "ghost", "auoscr", 0.75, 361),
    ("table-1", "convnextv2-h", "openimage-o", "nnguide", "fpr95", 0.64, 364),
    ("table-1", "mae-h", "ninco", "maxlogit", "auroc", 0.79, 363),
    ("table-2", "mae-h", "21k-p-hard", "energy", "f_at_c95", 0.74, 376),
    ("table-3", "mae-h", "ninco", "nnguide", "ccr_cv", 2.18, 410),
    ("table-4", "mae-h", "places", "msp", "auroc_p", 0.003, 523),
    ("table-4", "convnextv2-h", "sun", "energy", "auroc_std", 0.012, 555),
    ("table-4", "convnextv2-h", "21k-p-easy", "nnguide", "auroc_p", 8.210e-07, 562),
    ("table-4", "mae-h", "inaturalist", "ghost", "auroc_mean", 0.971, 536),
    ("table-5", "swin-t", "ninco", "energy", "auroc", 0.78, 623),
    ("table-5", "densenet-121", "openimage-o", "maxlogit", "auroc", 0.88, 635),
    ("table-5", "mae-h", "openimage-o", "knn", "fpr95", 0.30, 652),
    ("table-5", "convnextv2-h", "21k-p-hard", "scale", "auoscr", 0.55, 663),
    ("table-6", "swin-t", "21k-p-hard", "nnguide", "ccr_cv", 2.87, 681),
    ("table-6", "densenet-121", "ninco", "msp", "f_at_c95", 0.53, 710),
    ("table-6", "convnextv2-h", "openimage-o", "scale", "f_at_c95", 0.66, 749),
]


def source_lines() -> list[str]:
    """The paper's source, empty where it is not at hand."""
    return SOURCE.read_text(encoding="utf-8").split("\n") if SOURCE.exists() else []


def table_numbers() -> list[Published]:
    return [number for number in published.numbers() if number.table != "text"]


def caveats(kind: str) -> dict[tuple[str, str, str, str, str], str]:
    """Text of the caveats of a kind by the numbers they are about."""
    labels = {name: table.label for name, table in published.tables().items()}
    return {
        (labels[n.table], n.network, n.unknown, n.method, n.metric): caveat.text
        for n in published.numbers()
        for caveat in n.caveats
        if caveat.kind == kind
    }


def test_every_cell_of_every_table_is_there_once() -> None:
    wanted = [
        (table, *cell)
        for table, networks, unknowns, methods, metrics in SHAPES
        for cell in itertools.product(networks, unknowns, methods, metrics)
    ]
    assert len(wanted) == 848
    found = Counter((n.table, n.network, n.unknown, n.method, n.metric) for n in table_numbers())
    assert found == Counter(wanted)


@pytest.mark.parametrize(("table", "network", "unknown", "method", "metric", "value", "line"), SAMPLES)
def test_samples_read_by_eye(
    table: str, network: str, unknown: str, method: str, metric: str, value: float, line: int
) -> None:
    found = published.lookup(network, unknown, method, metric, table=table)
    assert found is not None
    assert (found.value, found.lines) == (value, (line,))


def test_the_numbers_are_those_of_the_source() -> None:
    numbers = table_numbers()
    shown = sorted(f"{n.table} {n.lines} {n.network} {n.unknown} {n.method} {n.metric} {n.printed}" for n in numbers)
    # Of the numbers when they were last compared with the source: it stands in for the source where that is missing.
    assert hashlib.sha256("\n".join(shown).encode()).hexdigest()[:16] == COMPARED
    cells = {cell.key: cell for cell in paper_source.cells(source_lines())}
    shifted, misprinted = caveats("shifted"), caveats("misprint")
    labels = {name: table.label for name, table in published.tables().items()}
    for number in numbers if cells else []:
        key = (labels[number.table], number.network, number.unknown, number.method, number.metric)
        if key in shifted:
            left = {"msp": "ghost", "maxlogit": "msp", "nnguide": "maxlogit"}.get(number.method, number.method)
            key = (*key[:3], left, key[4])
        cell = cells.pop(key)
        text = cell.printed
        if text.startswith(".0."):
            assert key in misprinted
            text = text[1:]
        assert (number.printed, number.lines) == (text if text[0] != "." else f"0{text}", (cell.line,)), key
    assert not cells


def test_the_statements_are_in_the_lines_they_name() -> None:
    statements = [number for number in published.numbers() if number.table == "text"]
    assert len(statements) == 20
    lines = source_lines()
    for statement in statements:
        assert statement.printed
        for line in statement.lines:
            assert not lines or statement.printed in lines[line - 1], statement
    rates = {n.network: n.value for n in published.find(metric="rejected_fraction")}
    assert rates == {"mae-h": 0.0279, "convnextv2-h": 0.0313, "swin-t": 0.0056, "densenet-121": 0.0827}


def test_every_disagreement_between_tables_has_a_caveat_and_no_other_number_has() -> None:
    printed = defaultdict(dict)
    for number in table_numbers():
        printed[number.network, number.unknown, number.method, number.metric][number.table] = number
    disagree = {key for key, places in printed.items() if len({n.value for n in places.values()}) > 1}
    assert len(disagree) == 8
    named = caveats("differs")
    assert {key[1:] for key in named} == disagree
    for key in disagree:
        for number in printed[key].values():
            text = next(caveat.text for caveat in number.caveats if caveat.kind == "differs")
            assert number.printed in text
            assert str(number.lines[0]) in text


def test_every_wrong_bold_mark_has_a_caveat() -> None:
    rows = defaultdict(list)
    for cell in paper_source.cells(source_lines()):
        if not cell.metric.startswith("auroc_"):
            rows[cell.label, cell.line, cell.network, cell.unknown, cell.metric].append(cell)
    wrong = set()
    for (label, _, network, unknown, metric), cells in rows.items():
        value = {cell.method: float(cell.printed.replace(".0.", "0.")) for cell in cells}
        best = (max if metric in ("auoscr", "auroc") else min)(value.values())
        bold = {cell.method for cell in cells if cell.bold}
        if bold != {method for method in value if value[method] == best}:
            wrong.add((label, network, unknown, metric))
    named = {(label, network, unknown, metric) for label, network, unknown, _, metric in caveats("bold")}
    assert len(named) == 6
    assert wrong == (named if rows else set())


def test_the_means_of_the_draws_agree_with_the_whole_sets_but_for_one() -> None:
    far = set()
    for mean in published.find(metric="auroc_mean"):
        place = (mean.network, mean.unknown, mean.method)
        whole = published.lookup(*place, "auroc")
        if whole is None:
            continue
        std = published.lookup(*place, "auroc_std")
        assert std is not None
        slack = mean.half_unit + whole.half_unit
        if abs(mean.value - whole.value) - slack > 3 * (std.value + std.half_unit) / 10**0.5:
            far.add(place)
    assert {key[1:4] for key in caveats("draws")} == far == {("mae-h", "ninco", "ghost")}


def test_the_p_values_contradict_the_text_where_the_caveat_says_so() -> None:
    found = published.find(metric="auroc_p", table="table-4")
    large = {n.unknown for n in found if n.value >= 1e-6}
    said = {key[2] for key in caveats("text") if key[0] == "tab:full_auroc_sig" and key[4] == "auroc_p"}
    assert said == large == {"places", "sun", "textures", "21k-p-easy"}
    not_significant = {
        (n.unknown, n.method) for n in published.find(metric="auroc_p", table="table-4") if n.value > 0.05
    }
    assert not_significant == {("places", "nnguide"), ("sun", "msp"), ("sun", "nnguide")}


@pytest.mark.parametrize("rival", ["react", "knn"])
@pytest.mark.parametrize("metric", ["auoscr", "auroc", "fpr95"])
def test_pooled_p_values_of_the_caveat_are_those_of_the_rounded_table(rival: str, metric: str) -> None:
    pairs = [
        [published.lookup(network, unknown, method, metric, table="table-5") for method in ("ghost", rival)]
        for network in ("mae-h", "convnextv2-h")
        for unknown in FOUR
    ]
    ghost, other = zip(*[[n.value for n in pair if n is not None] for pair in pairs], strict=True)
    (stated,) = published.find(table="text", method=rival, metric=f"{metric}_p")
    assert f"{stats.ttest_rel(ghost, other).pvalue:.3f}" in stated.caveats[0].text
    if (rival, metric) == ("knn", "fpr95"):
        assert sum(a < b for a, b in zip(ghost, other, strict=True)) == 6
        assert "six of eight" in stated.caveats[1].text


def test_names_of_methods_and_metrics_are_the_programs_own() -> None:
    assert {n.method for n in published.numbers()} - {""} <= set(catalogue.names())
    networks = {n.network for n in published.numbers()} - {""}
    assert networks == {"mae-h", "convnextv2-h", "swin-t", "densenet-121", "vit-b-16"}
    assert all(published.network_named(published.title(name)) == name for name in networks)
    assert all(published.unknown_named(published.title(name)) == name for name in EIGHT)


def test_lookups_understand_other_names_and_prefer_the_supplement() -> None:
    found = published.lookup("ConvNeXtV2-H", "OpenImage_O", "nnguide", "auoscr")
    assert found is not None
    assert (found.value, found.source) == (0.74, "Table 5, line 667")
    assert [caveat.kind for caveat in found.caveats] == ["differs"]
    assert published.lookup("torchvision:swin_t", "ssb_hard", "ghost", "auroc") == published.lookup(
        "swin-t", "21k-p-hard", "ghost", "auroc"
    )
    assert published.lookup("resnet50", "ninco", "ghost", "auroc") is None
    assert published.lookup("mae-h", "ninco", "vim", "auroc") is None
    assert published.network_named("resnet50") is None


@pytest.mark.parametrize(
    ("fields", "half_unit"),
    [
        ({"table": "table-1", "network": "mae-h", "unknown": "ninco", "method": "ghost", "metric": "auroc"}, 0.005),
        ({"network": "swin-t", "metric": "rejected_fraction"}, 0.00005),
        ({"network": "vit-b-16", "unknown": "openood-near"}, 0.00005),
        ({"network": "mae-h", "unknown": "ninco", "method": "nnguide", "metric": "auroc_p"}, 0.005e-15),
        ({"method": "react", "metric": "auoscr_p"}, 0.0),
    ],
)
def test_half_unit_is_what_rounding_hides(fields: dict[str, str], half_unit: float) -> None:
    (number,) = published.find(**fields)
    assert number.half_unit == pytest.approx(half_unit)


def test_sources_name_table_and_lines() -> None:
    assert published.find(network="mae-h", metric="rejected_fraction")[0].source == "text, lines 445 and 578"
