"use strict";
// Charts as SVG, drawn from the page's data. Colours are CSS variables: light, dark and paper need no second drawing.
const Chart = (() => {
  const { measure, shorten, format, domain, makeScale, ticksOf } = Scale;
  const DOT = { circle: (x, y) => `M${x} ${y}h0`, x: (x, y) => `M${x - 2.5} ${y - 2.5}l5 5m0 -5l-5 5` };

  const svg = (tag, attributes = {}, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const html = (tag, name, text) => {
    const made = document.createElement(tag);
    made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // ---- one chart ---------------------------------------------------------------------------------------------------
  const round = (value) => Math.round(value * 10) / 10;
  const paint = (shape, series, fill) => {
    const soft = series.kind === "bar" && series.colour === "quiet";
    shape.style[fill ? "fill" : "stroke"] = soft ? "color-mix(in srgb, var(--quiet) 55%, var(--card))" : `var(--${series.colour})`;
    return shape;
  };
  const stroke = (series) => {
    const shape = svg("path", { fill: "none", "stroke-width": series.width, "stroke-linejoin": "round" });
    if (series.dash) shape.setAttribute("stroke-dasharray", series.dash.map((part) => part * series.width).join(" "));
    return paint(shape, series, false);
  };
  const absent = (value) => value === null || Number.isNaN(value);
  const through = (xs, ys) => xs.map((x, i) => {
    if (absent(ys[i])) return "";
    return `${i === 0 || absent(ys[i - 1]) ? "M" : "L"}${round(x)} ${round(ys[i])}`;
  }).join("");
  // A bin's value holds from its left edge to the next one's.
  const stairs = (xs, ys) => xs.slice(0, -1).map((x, i) => {
    if (absent(ys[i])) return "";
    return `${i === 0 || absent(ys[i - 1]) ? "M" : "L"}${round(x)} ${round(ys[i])}H${round(xs[i + 1])}`;
  }).join("");

  // For each kind of series its shapes.
  const KINDS = {
    line(series, xs, ys) {
      const shape = stroke(series);
      shape.setAttribute("d", through(xs, ys));
      return [shape];
    },
    steps(series, xs, ys, frame) {
      const shape = stroke(series);
      shape.setAttribute("d", stairs(xs, ys));
      if (!frame.alone) return [shape];
      const below = paint(svg("path", { "fill-opacity": 0.22 }), series, true);
      below.setAttribute("d", `${stairs(xs, ys)}V${frame.bottom}H${round(xs[0])}Z`);
      return [below, shape];
    },
    band(series, xs, ys, frame) {
      const low = series.low.map(frame.y.at);
      const back = xs.map((_, i) => xs.length - 1 - i);
      const edge = through(back.map((i) => xs[i]), back.map((i) => low[i])).replace("M", "L");
      return [paint(svg("path", { "fill-opacity": 0.25, d: `${through(xs, ys)}${edge}Z` }), series, true)];
    },
    points(series, xs, ys) {
      const path = xs.map((x, i) => (absent(ys[i]) ? "" : DOT[series.symbol || "circle"](round(x), round(ys[i])))).join("");
      const circle = series.symbol !== "x";
      const width = !circle ? 1.5 : xs.length > 400 ? 4 : 6;
      return [paint(svg("path", { d: path, fill: "none", "stroke-width": width, "stroke-linecap": "round", "stroke-opacity": circle ? 0.75 : 1 }), series, false)];
    },
    bar(series, xs, ys, frame) {
      if (!frame.horizontal) {
        const half = frame.barWidth / 2;
        const path = xs.map((x, i) => `M${round(x - half)} ${frame.bottom}V${round(ys[i])}H${round(x + half)}V${frame.bottom}Z`).join("");
        return [paint(svg("path", { d: path }), series, true)];
      }
      const half = 0.33 * frame.y.step;
      const path = xs.map((x, i) => `M${frame.left} ${round(ys[i] - half)}H${round(x)}V${round(ys[i] + half)}H${frame.left}Z`).join("");
      const words = (series.text || []).map((text, i) => svg("text", { class: "tick value", x: round(xs[i] + 6), y: round(ys[i]), dy: "0.35em" }, text));
      return [paint(svg("path", { d: path }), series, true), ...words];
    },
  };

  const values = (spec, name) => spec.series.flatMap((series) => (name === "y" && series.low ? [...series.y, ...series.low] : series[name]));
  const barStep = (series) => Math.min(...series.x.slice(1).map((x, i) => x - series.x[i]));

  const frameOf = (chart, width, height) => {
    const { spec, zoom } = chart;
    const { x, y } = spec;
    const grounded = spec.series.some((series) => series.kind === "bar" || (series.kind === "steps" && y.scale !== "log"));
    const yEnds = domain(y, values(spec, "y"), { zero: grounded || y.percent }, zoom && zoom.y);
    const xEnds = domain(x, values(spec, "x"), { zero: spec.horizontal, pad: spec.horizontal ? 0 : 0.02, exact: true }, zoom && zoom.x);
    const yTicks = ticksOf(y, yEnds, Math.max(3, height / 60));
    const names = yTicks.map((tick) => (y.scale === "category" ? shorten(tick, 0.42 * width) : format(y, tick)));
    const [top, bottom] = [12, height - 46];
    const left = Math.max(Math.ceil(Math.max(...names.map(measure))) + 18 + (y.title ? 20 : 0), 62);
    let parts = Math.max(2, Math.floor((width - left) / 70));
    let xTicks = ticksOf(x, xEnds, parts);
    // The last label is centred under its tick and needs half its width beyond; bars have theirs beside them.
    const beside = spec.horizontal ? Math.max(...spec.series.flatMap((series) => series.text || [""]).map(measure)) + 8 : 0;
    const right = width - Math.max(14, Math.ceil(measure(format(x, xTicks.at(-1) ?? 0)) / 2) + 6, beside + 8);
    const widest = () => Math.max(...xTicks.map((tick) => measure(format(x, tick)))) + 12;
    while (parts > 2 && x.scale === "linear" && xTicks.length * widest() > right - left + 30) xTicks = ticksOf(x, xEnds, (parts -= 1));
    const frame = {
      left, right, top, bottom, width, height, yTicks, names, horizontal: spec.horizontal, alone: spec.series.length === 1,
      x: makeScale(x, xEnds, left, right), y: makeScale(y, yEnds, bottom, top),
    };
    // Labels that would touch the one before are left out.
    let used = -Infinity;
    frame.xTicks = xTicks.map((tick) => [tick, frame.x.at(tick), format(x, tick)]).sort(([, a], [, b]) => a - b).map(([tick, at, text]) => {
      const half = measure(text) / 2;
      if (at - half < used + 8) return [tick, at, ""];
      used = at + half;
      return [tick, at, text];
    });
    const bars = spec.series.find((series) => series.kind === "bar");
    if (bars && !spec.horizontal) frame.barWidth = 0.94 * Math.abs(frame.x.at(bars.x[0] + barStep(bars)) - frame.x.at(bars.x[0]));
    return frame;
  };

  const axes = (frame, spec) => {
    const made = svg("g");
    for (const [tick, at, text] of frame.xTicks) {
      if (spec.x.scale !== "category") made.append(svg("path", { class: "rule", d: `M${round(at)} ${frame.top}V${frame.bottom}` }));
      if (text) made.append(svg("text", { class: "tick x", x: round(at), y: frame.bottom + 17, "text-anchor": "middle", "data-at": tick }, text));
    }
    frame.yTicks.forEach((tick, i) => {
      const at = round(frame.y.at(tick));
      if (spec.y.scale !== "category") made.append(svg("path", { class: "rule", d: `M${frame.left} ${at}H${frame.right}` }));
      const label = svg("text", { class: "tick y", x: frame.left - 8, y: at, dy: "0.35em", "text-anchor": "end", "data-at": tick }, frame.names[i]);
      if (frame.names[i] !== String(tick) && spec.y.scale === "category") label.append(svg("title", {}, tick));
      made.append(label);
    });
    made.append(svg("path", { class: "axis", d: `M${frame.left} ${frame.top}V${frame.bottom}${spec.horizontal ? "" : `H${frame.right}`}` }));
    const middle = (frame.left + frame.right) / 2;
    made.append(svg("text", { class: "title", x: round(middle), y: frame.height - 8, "text-anchor": "middle" }, spec.x.title));
    if (spec.y.title) {
      const [x, y] = [13, round((frame.top + frame.bottom) / 2)];
      made.append(svg("text", { class: "title", transform: `translate(${x} ${y}) rotate(-90)`, "text-anchor": "middle" }, spec.y.title));
    }
    return made;
  };

  let clips = 0;
  const draw = (chart, size = {}) => {
    const { spec, hidden } = chart;
    const [width, height] = [Math.round(size.width || chart.element.clientWidth || 480), size.height || spec.height];
    const frame = frameOf(chart, width, height);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const clip = `clip-${(clips += 1)}`;
    const cut = svg("clipPath", { id: clip });
    cut.append(svg("rect", { x: frame.left - 1, y: frame.top - 4, width: (spec.horizontal ? frame.width : frame.right) - frame.left + 2, height: frame.bottom - frame.top + 5 }));
    const plot = svg("g", { "clip-path": `url(#${clip})` });
    chart.targets = [];
    spec.series.forEach((series, position) => {
      if (hidden.has(series.name)) return;
      const xs = series.x.map(frame.x.at);
      const ys = series.y.map((value) => (value === null ? null : frame.y.at(value)));
      const group = svg("g", { class: "series", "data-series": position, "data-kind": series.kind });
      group.append(...KINDS[series.kind](series, xs, ys, frame));
      plot.append(group);
      if (series.kind !== "band" && !series.reference) chart.targets.push({ series, xs, ys });
    });
    picture.append(cut, axes(frame, spec), plot, svg("g", { class: "pointed" }));
    [chart.frame, chart.width] = [frame, width];
    const old = chart.element.querySelector("svg");
    if (old) old.replaceWith(picture);
    else chart.element.prepend(picture);
  };

  // ---- legends -----------------------------------------------------------------------------------------------------
  const swatch = (series) => {
    const picture = svg("svg", { width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" });
    const filled = series.kind === "band" || series.kind === "bar";
    const shape = filled ? paint(svg("path", { d: "M2 1H26V11H2Z", "fill-opacity": series.kind === "band" ? 0.35 : 1 }), series, true)
      : series.kind === "points" ? KINDS.points(series, [14], [6])[0] : stroke(series);
    if (!filled && series.kind !== "points") shape.setAttribute("d", "M1 6H27");
    picture.append(shape);
    return picture;
  };
  // One legend for charts that show the same things; a click on a name hides it in all of them.
  const legend = (charts) => {
    const made = html("div", "legend");
    for (const series of charts[0].spec.series.filter((one) => !one.reference || charts.length === 1)) {
      const button = html("button", "");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(swatch(series), series.name);
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", shown);
        for (const chart of charts) {
          chart.hidden[shown ? "delete" : "add"](series.name);
          draw(chart);
        }
      });
      made.append(button);
    }
    return made;
  };

  const create = (element, spec) => {
    const chart = { element, spec, hidden: new Set(), zoom: null, targets: [] };
    chart.note = element.appendChild(html("div", "chart-note"));
    chart.reset = element.appendChild(html("button", "unzoom", "Show all"));
    chart.reset.type = "button";
    [chart.note.hidden, chart.reset.hidden] = [true, true];
    return chart;
  };
  return { create, draw, legend, svg, html, paint, round, barStep };
})();
