"""A report's page taken apart, for tests that read its numbers back."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ghost_ray.config import ReportConfig
from ghost_ray.report import run


class Page(HTMLParser):
    """A page taken apart: its tags, its text, its scripts, its tables."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self._inside = ""
        self._figure = ""
        self._cell = False
        self.feed(html)
        self.data: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag in ("script", "style"):
            self._inside = tag
        if tag == "script":
            self.scripts.append("")
        if tag == "figure" or attributes.get("id") == "found":
            self._figure = attributes.get("id") or ""
            self.tables[self._figure] = []
        if tag == "tr" and self._figure:
            self.tables[self._figure].append([])
        self._cell = self._cell or tag in ("td", "th")
        if tag in ("td", "th") and self._figure:
            self.tables[self._figure][-1].append(("", attributes.get("data-value")))

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside
        self._figure = "" if tag in ("figure", "section") else self._figure
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            data = data.replace("\u00a0", " ")
            self.text += data
            rows = self.tables.get(self._figure)
            if rows and rows[-1] and self._cell:
                rows[-1][-1] = (rows[-1][-1][0] + data, rows[-1][-1][1])

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make_page(*folders: Path, **options: Any) -> Page:
    """The page of what the folders hold, made without figures."""
    out = folders[0] / "page.html"
    result = run(ReportConfig(folders=tuple(map(str, folders)), out=str(out), **{"plots": False, **options}))
    html = out.read_text(encoding="utf-8")
    assert result["bytes"] == out.stat().st_size
    return Page(html)
