"""Reading a page's charts back in the browser: from shapes, by the labels of their axes, to the numbers they show."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

DRAWN = """() => [...document.querySelectorAll("[data-chart]")].map((chart) => {
  const ticks = (axis) => [...chart.querySelectorAll(`.tick.${axis}`)].map((tick) =>
    [(tick.querySelector("title") || tick.firstChild).textContent, Number(tick.getAttribute(axis))]);
  const series = [...chart.querySelectorAll(".series")].map((group) =>
    [...group.querySelectorAll("path")].map((path) => path.getAttribute("d")).at(-1));
  const { clientWidth: width } = chart.querySelector("svg");
  return { id: chart.dataset.chart, width, x: ticks("x"), y: ticks("y"), series };
})"""
PAIR = r"(-?[\d.]+(?:e[+-]?\d+)?) (-?[\d.]+(?:e[+-]?\d+)?)"
# How the shapes of each kind of series name the points they stand for.
SHAPES = {
    "line": rf"[ML]{PAIR}",
    "steps": rf"[ML]{PAIR}H",
    "points": rf"M{PAIR}",
    "bar": r"M(-?[\d.]+) [\d.]+V(-?[\d.]+)H(-?[\d.]+)",
    "lying bar": r"M[\d.]+ (-?[\d.]+)H(-?[\d.]+)V(-?[\d.]+)",
}


def number(label: str) -> float:
    """What a tick's label says, as a reader takes it."""
    text = label.replace(",", "").replace("−", "-").replace("\u00a0", " ")
    return float(text[:-2]) / 100 if text.endswith(" %") else float(text)


def _scale(ticks: list[tuple[str, float]], axis: dict[str, Any]) -> Callable[[float], float]:
    """Where a value stands, found out from two labels of the axis."""
    told = [((1 - number(label)) if axis["one_minus"] else number(label), at) for label, at in ticks]
    measure = math.log10 if axis["scale"] == "log" else float
    (first, a), (last, b) = told[0], told[-1]
    slope = (b - a) / (measure(last) - measure(first))
    return lambda value: a + slope * (measure(value) - measure(first))


def _misplaced(drawn: dict[str, Any], spec: dict[str, Any], series: list[dict[str, Any]]) -> list[str]:
    """Series whose shapes are not where the axes' labels say the data's values are."""
    wrong = []
    x = _scale(drawn["x"], spec["x"])
    lying = spec["horizontal"]
    y = dict(drawn["y"]).__getitem__ if lying else _scale(drawn["y"], spec["y"])
    assert len(drawn["series"]) == len(series), drawn["id"]
    for path, one in zip(drawn["series"], series, strict=True):
        kind = "lying bar" if lying else one["kind"]
        if kind == "band":
            found = np.array([(float(a), float(b)) for a, b in re.findall(SHAPES["line"], path)])
            there = [*zip(one["x"], one["y"], strict=True), *zip(one["x"][::-1], one["low"][::-1], strict=True)]
        else:
            parts = np.array([[float(part) for part in match] for match in re.findall(SHAPES[kind], path)])
            if kind == "bar":
                found = np.stack([(parts[:, 0] + parts[:, 2]) / 2, parts[:, 1]], axis=1)
            elif kind == "lying bar":
                found = np.stack([parts[:, 1], (parts[:, 0] + parts[:, 2]) / 2], axis=1)
            else:
                found = parts + (2.5 if one.get("symbol") == "x" else 0)
            there = list(zip(one["x"], one["y"], strict=True))[: -1 if kind == "steps" else None]
        shown = [i for i, (_, value) in enumerate(there) if value is not None]
        if len(found) != len(shown):
            wrong.append(f"{drawn['id']}: {one['name']} has {len(found)} points, not {len(shown)}")
            continue
        for (a, b), i in zip(found, shown, strict=True):
            for at, value, where, axis in ((a, there[i][0], x, spec["x"]), (b, there[i][1], y, spec["y"])):
                if axis["scale"] == "log" and value <= 0:
                    continue
                if abs(at - where(value)) > 1.5:
                    wrong.append(f"{drawn['id']}: {one['name']} {value} at {at}, not {where(value)}")
    return wrong


def wrongly_drawn(page: Any) -> list[str]:
    """Charts that are empty, or whose shapes read back as other numbers than the page's data."""
    charts = json.loads(page.locator("#data").text_content())["charts"]
    wrong = []
    for drawn in page.evaluate(DRAWN):
        spec = charts[drawn["id"]]
        if drawn["width"] < 150:
            wrong.append(f"{drawn['id']} is {drawn['width']} px wide")
        wrong += _misplaced(drawn, spec, spec.get("series") or charts[spec["series_of"]]["series"])
    return wrong
