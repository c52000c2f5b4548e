"use strict";
// What a reader can do with a chart: point at a value, and drag over a part to see it larger.
const pointing = (() => {
  const { draw, svg, html, paint, round, barStep } = Chart;
  const { format } = Scale;

  // ---- pointing ----------------------------------------------------------------------------------------------------
  const REACH = 60;
  const nearest = (chart, x, y) => {
    let found = null;
    let best = REACH ** 2;
    for (const { series, xs, ys } of chart.targets) {
      const bars = series.kind === "bar";
      for (let i = 0; i < xs.length - (series.kind === "steps" ? 1 : 0); i += 1) {
        if (ys[i] === null) continue;
        const at = series.kind === "steps" ? [(xs[i] + xs[i + 1]) / 2, ys[i]] : [xs[i], ys[i]];
        // Of a bar its whole length can be pointed at.
        const across = bars && chart.spec.horizontal ? 0 : at[0] - x;
        const down = bars && !chart.spec.horizontal ? 0 : at[1] - y;
        const away = across ** 2 + down ** 2;
        if (away < best) [best, found] = [away, { series, i, at }];
      }
    }
    return found;
  };
  const describe = ({ x, y, horizontal }, { series, i }) => {
    if (horizontal) return [series.y[i], `${x.title}: ${format(x, series.x[i])}`];
    const ends = series.kind === "steps" ? [series.x[i], series.x[i + 1]]
      : series.kind === "bar" ? [-0.5, 0.5].map((half) => series.x[i] + half * barStep(series)) : null;
    const across = ends ? ends.sort((a, b) => (x.one_minus ? b - a : a - b)).map((end) => format(x, end)).join(" to ") : format(x, series.x[i]);
    const lines = [`${y.title}: ${format(y, series.y[i])}`];
    // A position in a sorted list has no meaning: show the label.
    if (!x.ordinal) lines.unshift(`${x.title}: ${across}`);
    return [series.labels ? series.labels[i] : series.name, ...lines];
  };
  const inPicture = (chart, event) => {
    const box = chart.element.querySelector("svg").getBoundingClientRect();
    const scale = chart.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };
  const point = (chart, event) => {
    const [x, y] = inPicture(chart, event);
    const found = nearest(chart, x, y);
    const mark = chart.element.querySelector(".pointed");
    mark.replaceChildren();
    chart.note.hidden = !found;
    if (!found) return;
    const [head, ...lines] = describe(chart.spec, found);
    chart.note.replaceChildren(html("strong", "", head), ...lines.map((line) => html("span", "", line)));
    if (found.series.kind !== "bar") mark.append(paint(svg("circle", { cx: round(found.at[0]), cy: round(found.at[1]), r: 5 }), found.series, true));
    const left = found.at[0] < chart.width / 2;
    chart.note.style.left = left ? `${(100 * (found.at[0] + 12)) / chart.width}%` : "auto";
    chart.note.style.right = left ? "auto" : `${100 - (100 * (found.at[0] - 12)) / chart.width}%`;
    chart.note.style.top = `${Math.max(0, Math.min(found.at[1] - 24, chart.frame.height - 96))}px`;
  };

  // ---- zooming: drag over a part; double-click or the button goes back ---------------------------------------------
  const canZoom = (spec) => !spec.horizontal && !spec.x.one_minus;
  const zoomTo = (chart, zoom) => {
    chart.zoom = zoom;
    chart.reset.hidden = !zoom;
    draw(chart);
  };
  const select = (chart, [x0, y0], [x1, y1]) => {
    const { frame } = chart;
    const hold = (value, low, high) => Math.min(Math.max(value, low), high);
    const xs = [x0, x1].map((x) => hold(x, frame.left, frame.right)).sort((a, b) => a - b);
    // A flat stroke means the width alone.
    const flat = Math.abs(y1 - y0) < 16;
    const ys = (flat ? [frame.top, frame.bottom] : [y0, y1]).map((y) => hold(y, frame.top, frame.bottom)).sort((a, b) => b - a);
    return { xs, ys };
  };
  return (chart) => {
    const { element } = chart;
    let start = null;
    const quiet = () => {
      chart.note.hidden = true;
      element.querySelector(".pointed")?.replaceChildren();
    };
    element.addEventListener("pointermove", (event) => {
      if (!start) return point(chart, event);
      const { xs, ys } = select(chart, start, inPicture(chart, event));
      const box = svg("rect", { class: "chosen", x: xs[0], y: ys[1], width: xs[1] - xs[0], height: ys[0] - ys[1] });
      element.querySelector(".pointed").replaceChildren(box);
      chart.note.hidden = true;
      return undefined;
    });
    element.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") point(chart, event);
      else if (event.button === 0 && canZoom(chart.spec) && !event.target.closest("button")) {
        start = inPicture(chart, event);
        element.setPointerCapture(event.pointerId);
        event.preventDefault();
      }
    });
    element.addEventListener("pointerup", (event) => {
      if (!start) return;
      const { xs, ys } = select(chart, start, inPicture(chart, event));
      start = null;
      quiet();
      if (xs[1] - xs[0] > 8) zoomTo(chart, { x: xs.map(chart.frame.x.back), y: ys.map(chart.frame.y.back) });
    });
    element.addEventListener("pointerleave", quiet);
    element.addEventListener("dblclick", () => zoomTo(chart, null));
    chart.reset.addEventListener("click", () => zoomTo(chart, null));
  };
})();
