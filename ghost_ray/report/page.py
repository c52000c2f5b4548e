"""A document as one self-contained HTML file: all text is escaped, every script is hashed into the page's policy."""

from __future__ import annotations

import base64
import datetime
import hashlib
import importlib.resources
import json
from typing import Any

from ghost_ray import __version__
from ghost_ray.report import look
from ghost_ray.report.document import Block, ClassTable, Document, HeatMap, charts_of, shown

_SCRIPTS = ("scale.js", "chart.js", "pointing.js", "report.js")
_ASSETS = importlib.resources.files("ghost_ray.report") / "assets"


def render_page(document: Document) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_keep_together,
    )  # fmt: skip
    environment.filters["data_uri"] = lambda png: "data:image/png;base64," + base64.b64encode(png).decode()
    environment.filters["jpeg_uri"] = lambda jpeg: "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    data = shown(safe_json(page_data(document)))
    script = "".join(_asset(name) for name in _SCRIPTS)
    page = environment.get_template("page.html").render(
        page=document,
        data=data,
        style=look.css_variables() + _asset("report.css"),
        script=script,
        policy=content_policy([data, script]),
        made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )
    return shown(page)


def page_data(document: Document) -> dict[str, Any]:
    """Every number the page draws, by the id of the element that shows it."""
    data: dict[str, dict[str, Any]] = {"charts": {}, "heat_maps": {}, "class_tables": {}}
    for section in document.sections:
        blocks: list[Block] = list(section.blocks)
        data["charts"] |= {chart.id: chart.as_json() for chart in charts_of(blocks)}
        data["heat_maps"] |= {block.id: block.as_json() for block in blocks if isinstance(block, HeatMap)}
        data["class_tables"] |= {block.id: block.as_json() for block in blocks if isinstance(block, ClassTable)}
    return data


def safe_json(value: Any) -> str:
    """JSON that is safe inside a script element, whatever strings it holds."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.translate(
        {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
    )


def content_policy(scripts: list[str]) -> str:
    """A content security policy that loads nothing and runs only the page's own scripts."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _keep_together(value: Any) -> Any:
    """No line ends between a number and its percent sign; what is marked as safe (scripts, data) stays as it is."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value
