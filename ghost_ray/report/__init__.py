"""``report``: one self-contained page of the results in the given folders.

find results → one section each (numbers, words, charts) → the page, and the same charts as figures for papers::

    X/report.html    the page: opens offline, carries its data
    X/plots/         every chart as PNG, SVG and PDF
"""

from __future__ import annotations

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
    """The page of a study where one was named, else of all that was found."""
    from ghost_ray.report.study.study_page import document_of

    if results[0].kind != "study":
        return assemble(results, title)
    return document_of(results[0])


def _parent(place: str) -> str:
    """The folder of a file."""
    parent, slash, _ = place.rpartition("/")
    return parent if slash else "."
