"""``study``: networks × unknown sets × methods, side by side, beside the paper's published numbers.

plan → extract what is missing → fit, audit and evaluate each network → compare → write::

    STUDY/results.parquet   network, unknown, method, metric, value, std: one line a cell and metric
    STUDY/results.json      the same, the audits, the tests and the paper's numbers
    STUDY/tables/           the paper's tables as Markdown and LaTeX
    STUDY/report.html       the page; plots/ has its figures for papers
    STUDY/NETWORK/          stores, model, audit and evaluation of each network
    STUDY/manifest.json     written last
"""

from __future__ import annotations

from ghost_ray.jobs.study.study_job import run

__all__ = ["run"]
