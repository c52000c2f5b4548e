"""The tables of a study: the paper's own numbers come out in the paper's layout, and TeX can set them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import latex, paper_source
from support.studies import of_the_paper

from ghost_ray import published
from ghost_ray.report.study.study_tables import files_of

SOURCE = Path(__file__).parents[4] / "shared" / "ghost_paper.tex"
BOTH = ("mae-h", "convnextv2-h")
FOUR = ("swin-t", "densenet-121", *BOTH)


def _cells(tabular: latex.Tabular, heads: int) -> list[list[str]]:
    return [[latex.plain(cell) for cell in row] for row in tabular.rows[heads:]]


def _assert_laid_out_as_in(source: str, mine: str) -> None:
    theirs = source[source.rindex(r"\begin{table", 0, source.index("tab:overall_metrics")) :].split(r"\end{table*}")[0]
    for pattern in (r"\\begin\{tabular\}\{(l\?c+)\}", r"\\multicolumn\{(4)\}\{(c\??)\}\{\\textbf", r"\\cline\{(.*?)\}"):
        assert re.findall(pattern, mine) == re.findall(pattern, theirs)
    separators = r"\\multicolumn\{1\}\{c([|?]?)\}\{\$\\uparrow"
    ends = re.findall(separators, mine)
    # The paper leaves out the \multicolumn of each row's last cell, which has no rule after it.
    assert [end for end in ends if end] == re.findall(separators, theirs)
    printed = [cell for cell in paper_source.cells(source.splitlines()) if cell.label == "tab:overall_metrics"]
    bold = {(cell.network, cell.unknown, cell.method, cell.metric): cell.bold for cell in printed}
    (found,) = latex.tabulars(mine)
    sets = ("21k-p-easy", "21k-p-hard", "ninco", "openimage-o")
    columns = [(network, method) for network in BOTH for method in ("ghost", "msp", "maxlogit", "nnguide")]
    for row, unknown in zip(_cells(found, 3), sets, strict=True):
        for (network, method), cell in zip(columns, row[1:], strict=True):
            marks = ["*" in word for word in cell.split()]
            assert marks == [bold[network, unknown, method, metric] for metric in ("auoscr", "auroc", "fpr95")]


def test_table_1_has_the_papers_layout_numbers_and_bold_marks() -> None:
    text = files_of(of_the_paper("table-1", BOTH))["overall.tex"]
    if SOURCE.is_file():  # the package's own copy of the numbers is compared below in any case
        _assert_laid_out_as_in(SOURCE.read_text(encoding="utf-8"), text)
    (found,) = latex.tabulars(text)
    assert found.spec == "l?cccccccc"
    heads = [[latex.plain(cell) for cell in row] for row in found.rows[:3]]
    assert heads[0] == ["*Unknowns*", "* AUOSCR* * AUROC* * FPR95*"]
    assert heads[1] == ["", "*MAE-H*", "*ConvNeXtV2-H*"]
    assert heads[2][1:] == ["*GHOST*", "*MSP*", "*MaxLogit*", "*NNGuide*"] * 2
    rows = _cells(found, 3)
    assert [row[0] for row in rows] == ["21K-P Easy", "21K-P Hard", "NINCO", "OpenImage-O"]
    assert rows[0][1:3] == ["*0.75* *0.84* *0.58*", "0.72 0.80 0.65"]
    for row, unknown in zip(rows, ("21k-p-easy", "21k-p-hard", "ninco", "openimage-o"), strict=True):
        columns = [(network, method) for network in BOTH for method in ("ghost", "msp", "maxlogit", "nnguide")]
        for (network, method), cell in zip(columns, row[1:], strict=True):
            printed = [published.lookup(network, unknown, method, m, "table-1") for m in ("auoscr", "auroc", "fpr95")]
            assert [float(word.strip("*")) for word in cell.split()] == [number.value for number in printed if number]


def test_the_supplements_tables_have_a_panel_per_network() -> None:
    text = files_of(of_the_paper("table-5", FOUR))["all-methods.tex"]
    found = latex.tabulars(text)
    assert re.findall(r"\\subfloat\[(.*?)\]", text) == ["Swin-T", "DenseNet-121", "MAE-H", "ConvNeXtV2-H"]
    assert [tabular.spec for tabular in found] == ["l?ccccc"] * 2 + ["l?cccccccc"] * 2
    # Ties are bold together: MaxLogit and Energy share two figures of DenseNet-121.
    easy = _cells(found[1], 2)[0]
    assert easy[1:] == [
        "0.61 0.77 0.75",
        "0.63 0.77 0.76",
        "*0.64* *0.79* *0.74*",
        "0.17 0.27 0.99",
        "0.63 *0.79* *0.74*",
    ]
    small = files_of(of_the_paper("table-6", FOUR))["fairness.tex"]
    panels = re.findall(r"\\subfloat\[(.*?)\]", small)
    assert panels[:2] == ["Swin-T: V", "Swin-T: F@C95"]
    assert len(panels) == 8
    first, second, *_ = latex.tabulars(small)
    assert first.spec == "@{}l?c|c|c|c|c@{}"
    assert _cells(first, 1)[0] == ["21K-P Easy", "*0.37*", "0.52", "0.59", "1.13", "0.69"]
    assert _cells(second, 1)[0] == ["21K-P Easy", "0.57", "*0.53*", "0.56", "0.92", "0.68"]


def test_markdown_has_the_same_numbers_and_marks() -> None:
    made = files_of(of_the_paper("table-1", BOTH))
    lines = [line for line in made["overall.md"].splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert widths == {10}
    assert lines[1] == "|" + " --- |" * 9
    assert lines[2].startswith("| 21K-P Easy | **0.75** **0.84** **0.58** | 0.72 0.80 0.65 |")


def test_names_of_any_kind_are_escaped() -> None:
    study = of_the_paper("table-1", BOTH)
    nasty = r"50%_of\{it}&|*more*~^#$"
    study["networks"][0]["name"] = nasty
    for cell in study["results"]:
        cell["network"] = nasty if cell["network"] == "mae-h" else cell["network"]
    for name, text in files_of(study).items():
        if name.endswith(".tex"):
            latex.tabulars(text)
        else:
            rows = [line for line in text.splitlines() if line.startswith("|")]
            for table in re.split(r"\n\n", "\n".join(rows)):
                assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) <= 2


def test_bold_counts_methods_that_are_not_shown() -> None:
    study = of_the_paper("table-5", BOTH)
    for cell in study["results"]:
        if cell["method"] == "energy":  # beats everything on one network
            best = cell["network"] == "mae-h"
            cell["value"] = float(best) if cell["metric"] != "fpr95" else float(not best)
        if cell["method"] == "nnguide":
            cell["method"] = "nnguide:k=10"
    study["methods"] = ["nnguide:k=10" if method == "nnguide" else method for method in study["methods"]]
    made = files_of(study)
    (found,) = latex.tabulars(made["overall.tex"])
    assert len([cell for cell in found.rows[2] if "NNGuide" in cell]) == 2
    for row in _cells(found, 3):
        shown = len(row[1:]) // 2
        assert not any("*" in cell for cell in row[1 : 1 + shown]), "Energy is better, and not shown"
        assert any("*" in cell for cell in row[1 + shown :])
    for text in (made["overall.tex"], made["overall.md"]):
        assert "also of those not shown here" in text
        assert "Energy" in text
    assert "not shown here" not in files_of(of_the_paper("table-1", BOTH))["overall.md"]


def test_a_users_name_of_a_set_stays_and_the_papers_stands_beside_its_number() -> None:
    study = of_the_paper("table-5", ("mae-h",))
    study["unknowns"] = ["dtd" if name == "ninco" else name for name in study["unknowns"]]
    study["networks"][0]["unknowns"] = dict.fromkeys(study["unknowns"], 5000)
    for cell in study["results"]:
        cell["unknown"] = "dtd" if cell["unknown"] == "ninco" else cell["unknown"]
    line = {"network": "mae-h", "unknown": "dtd", "method": "ghost", "metric": "auroc", "here": 0.9, "paper": 0.9}
    study["published"] = [{**line, "difference": 0.0, "rounding": 0.005, "source": "Table 5", "caveats": []}]  # type: ignore[typeddict-item]
    made = files_of(study)
    assert "| dtd |" in made["overall.md"]
    assert "21K-P Easy" in made["overall.md"]
    assert "Textures" not in "".join(text for name, text in made.items() if not name.startswith("published"))
    assert "dtd (the paper's Textures)" in made["published.md"]


def test_the_caption_of_the_tests_says_how_much_was_drawn() -> None:
    study = of_the_paper("table-1", ("mae-h",))
    test = {"network": "mae-h", "unknown": "ninco", "method": "msp", "reference": "ghost", "metric": "auroc"}
    values = {"mean": 0.7, "reference_mean": 0.8, "difference": -0.1, "t": -3.0, "p": 0.01, "p_bonferroni": 0.03}
    study["tests"] = [{**test, **values, "significant": True, "note": ""}]  # type: ignore[typeddict-item]
    assert "over 10 draws of 1,000 knowns and unknowns." in files_of(study)["significance-auroc.md"]
    study["networks"][0]["unknowns"]["ninco"] = 600
    caption = files_of(study)["significance-auroc.md"]
    assert "over 10 draws of at most 1,000 knowns and unknowns (ninco 300)." in caption


@pytest.mark.parametrize(
    "broken",
    [
        r"\begin{tabular}{lc} a & b & c \\ \end{tabular}",
        r"\begin{tabular}{lc} a & \multicolumn{2}{c}{b} \\ \end{tabular}",
        r"\begin{tabular}{lc} a & \textbf{b \\ \end{tabular}",
        r"\begin{tabular}{lc} a_1 & b \\ \end{tabular}",
        r"\begin{tabular}{lc} a & \uparrow b \\ \end{tabular}",
        r"\begin{tabular}{lc} a & \bold{b} \\ \end{tabular}",
        r"\begin{table} \begin{tabular}{lc} a & b \\ \end{tabular}",
        r"\begin{tabular}{lc} a & 50% \\ \end{tabular}",
        r"\begin{tabular}{lc} a & – \\ \end{tabular}",
    ],
)
def test_the_reader_is_strict(broken: str) -> None:
    with pytest.raises(ValueError):
        latex.tabulars(broken)
