"""``report``: one self-contained page of the results in the given folders.

find results → one section each (numbers, words, charts) → the page, and the same charts as figures for papers::

    X/report.html    the page: opens offline, carries its data
    X/plots/         every chart as PNG, SVG and PDF
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from ghost_ray.config import ReportConfig
from ghost_ray.errors import InputError, redact
from ghost_ray.files import join, kind_of, output_file
from ghost_ray.report.assemble import assemble
from ghost_ray.report.discover import Result, find_results
from ghost_ray.report.document import Document
from ghost_ray.report.page import render_page
from ghost_ray.report.plots import save_plots

__all__ = ["run", "save_plots"]

PAGE, PLOTS = "report.html", "plots"


class ShownSection(TypedDict):
    kind: str
    folder: str


class ReportResult(TypedDict):
    """What ``report`` returns."""

    report: str
    bytes: int
    plots: list[str]
    verdict: list[str]
    sections: list[ShownSection]
    unfinished: list[str]  # folders
    missing: list[str]


def run(config: ReportConfig) -> ReportResult:
    """Write the page; returns where it is and what it shows."""
    results = find_results(config.folders)
    place = config.out or join(config.folders[0], PAGE)
    if not config.overwrite and kind_of(place) == "file":
        raise InputError("out", redact(place), "exists already", "leave out `overwrite=False` or choose a new name")
    document = _document(results, config.title)
    content = render_page(document).encode()
    with output_file(place, overwrite=config.overwrite) as handle:
        handle.write(content)
    plots = save_plots(document, join(_parent(place), PLOTS)) if config.plots else []
    return {
        "report": place,
        "bytes": len(content),
        "plots": plots,
        "verdict": list(document.verdict),
        "sections": [{"kind": section.kind, "folder": section.source} for section in document.sections],
        "unfinished": [line.folder for line in document.found if line.state != "complete"],
        "missing": list(document.absent),
    }


def _document(results: list[Result], title: str) -> Document:
    """Everything that was found on one page, a study first; that of a demo has a page of its own and is only listed."""
    from ghost_ray.report.study.study_page import document_of

    demos = tuple(f"{result.uri}/" for result in results if result.kind == "demo")
    studies = [result for result in results if result.kind == "study" and not result.uri.startswith(demos)]
    others = [result for result in results if result not in studies]
    if len(studies) > 1:
        names = ", ".join(redact(study.uri) for study in studies)
        raise InputError("folders", names, "are several studies, and a page shows one", "report each by itself")
    if not studies:
        return assemble(others, title)
    study = document_of(studies[0])
    if not others:
        return study
    rest = assemble(others, title)
    return replace(
        study,
        verdict=[*study.verdict, *rest.verdict],
        headed=[*study.headed, *rest.headed],
        found=[*study.found, *rest.found],
        sections=[*study.sections, *rest.sections],
    )


def _parent(place: str) -> str:
    """The folder of a file."""
    parent, slash, _ = place.rpartition("/")
    return parent if slash else "."
