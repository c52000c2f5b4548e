"""The figures for papers: nothing in them is cut off, and nothing lies on something else."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from support.results import make_evaluation

from ghost_ray.report.plots import drawing, figures_in


def title_boxes(figure: Figure) -> dict[str, Bbox]:
    """Where the titles of a figure's charts are drawn."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    return {
        text.get_text(): text.get_window_extent(renderer)
        for axes in figure.axes
        for text in axes.findobj(Text)
        if text.get_text() and text.get_text() == axes.get_title(loc="left")
    }


def test_every_title_is_whole(tmp_path: Path) -> None:
    make_evaluation(tmp_path, methods=("ghost", "msp"), sets=("near",), knowns=200, classes=20)
    titles: dict[str, Bbox] = {}
    with drawing():
        for figure in figures_in(str(tmp_path)).values():
            found = title_boxes(figure)
            boxes = list(found.values())
            for place, box in enumerate(boxes):
                assert box.x1 <= figure.bbox.x1
                assert box.y1 <= figure.bbox.y1
                assert box.count_overlaps(boxes[:place]) == 0
            titles |= found
    assert "OSCR, bottom 10 % of classes, logarithmic" in {title.replace("\n", " ") for title in titles}
    assert any("\n" in title for title in titles)
