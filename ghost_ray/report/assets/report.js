"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  // ---- colours: CSS decides, charts follow -------------------------------------------------------------------------
  const probe = document.body.appendChild(make("span", "", { hidden: "" }));
  const resolved = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const readTheme = () => ({ ink: resolved("ink"), quiet: resolved("quiet"), line: resolved("line"), card: resolved("card") });
  let theme = readTheme();
  const faint = (colour, share) => {
    const [r, g, b] = colour.startsWith("#")
      ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
      : colour.match(/[\d.]+/g).map(Number);
    return `rgba(${r},${g},${b},${share})`;
  };

  // ---- charts ------------------------------------------------------------------------------------------------------
  const look = (style) => {
    const { colours, dashes, symbols, named } = data.style;
    const known = typeof style === "number"
      ? { colour: colours[style % colours.length], dash: dashes[style % dashes.length], symbol: symbols[style % symbols.length] }
      : named[style];
    return { ...known, colour: { ink: theme.ink, quiet: theme.quiet }[known.colour] || known.colour };
  };
  const hover = (spec, series) => {
    const format = (axis) => (axis.percent ? ":.2~%" : axis.scale === "category" ? "" : ":.4~g");
    const x = spec.x.one_minus ? "%{customdata}" : `%{x${format(spec.x)}}`;
    const y = `%{y${format(spec.y)}}`;
    if (series.labels) return `%{text}<br>${x}, ${y}<extra></extra>`;
    return spec.horizontal ? `%{y}: ${x}<extra></extra>` : `${x}, ${y}<extra>%{fullData.name}</extra>`;
  };
  // Plotly reads <b>, <a> and the like as markup; names are text.
  const literal = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const traces = (spec, series, position) => {
    const { colour, dash, symbol, width = 2 } = look(series.style);
    const trace = {
      type: "scatter", name: literal(series.name), x: series.x, y: series.y, hovertemplate: hover(spec, series),
      text: series.labels && series.labels.map(literal), customdata: spec.x.one_minus ? series.x.map((v) => `W ${(1 - v).toPrecision(4)}`) : undefined,
    };
    if (series.kind === "bar") {
      const label = series.text && series.text.map(literal);
      return [{ ...trace, type: "bar", orientation: spec.horizontal ? "h" : "v", marker: { color: colour }, text: label,
        y: spec.horizontal ? series.y.map(literal) : series.y, textposition: label ? "outside" : "none", cliponaxis: false, textfont: { color: theme.ink } }];
    }
    if (series.kind === "points") {
      return [{ ...trace, mode: "markers", marker: { color: faint(colour, 0.65), size: series.x.length > 400 ? 4 : 6, symbol } }];
    }
    const line = { color: colour, dash, width };
    if (series.kind === "steps") {
      const filled = spec.series_count === 1;
      return [{ ...trace, mode: "lines", line: { ...line, shape: "hv" }, fill: filled ? "tozeroy" : "none", fillcolor: faint(colour, 0.25) }];
    }
    if (series.kind === "band") {
      const edge = { ...trace, mode: "lines", line: { width: 0 }, legendgroup: `band${position}`, hoverinfo: "skip", hovertemplate: undefined };
      return [{ ...edge, y: series.low, showlegend: false }, { ...edge, fill: "tonexty", fillcolor: faint(colour, 0.28) }];
    }
    return [{ ...trace, mode: "lines", line }];
  };

  const axis = (given) => {
    const made = {
      title: { text: given.title, font: { size: 12, color: theme.quiet }, standoff: 10 }, automargin: given.scale === "category", ticklabeloverflow: "allow", gridcolor: theme.line,
      linecolor: theme.line, zerolinecolor: theme.line, tickfont: { size: 11, color: theme.quiet }, type: given.scale,
    };
    if (given.order) Object.assign(made, { categoryorder: "array", categoryarray: given.order.map(literal) });
    if (given.range) made.range = given.scale === "log" ? given.range.map(Math.log10) : given.range;
    if (given.percent) made.tickformat = ".3~%";
    if (given.scale === "log") Object.assign(made, { dtick: 1, exponentformat: "none" });
    if (given.one_minus) {
      made.tickvals = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.5, 0.9];
      made.ticktext = made.tickvals.map((v) => String(+(1 - v).toFixed(5)));
    }
    return made;
  };

  const coarse = matchMedia("(pointer: coarse)").matches;
  // Margins are reckoned here: left to Plotly, it lays every chart out several times over.
  const LETTER = 6.4;
  const legendRows = (spec, width) => {
    if (spec.series_count < 2) return 0;
    const entry = 52 + LETTER * Math.max(...spec.series.map((series) => series.name.length));
    return Math.ceil(spec.series_count / Math.max(1, Math.floor((width - 40) / entry)));
  };
  const margin = (spec, width) => ({
    l: spec.horizontal ? 8 : 64, r: 18, t: 14, b: 48 + (spec.series_count > 1 ? 10 + 19 * legendRows(spec, width) : 0), autoexpand: spec.horizontal,
  });
  const layout = (spec, width) => ({
    width, height: spec.height, margin: margin(spec, width), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme.ink }, xaxis: axis(spec.x), yaxis: axis(spec.y),
    showlegend: spec.series_count > 1, legend: { orientation: "h", yref: "container", y: 0.01, yanchor: "bottom", xref: "container", x: 0.5, xanchor: "center", font: { size: 11, color: theme.ink } },
    bargap: spec.horizontal ? 0.35 : 0.04, barmode: "overlay", hovermode: "closest", dragmode: coarse ? false : "zoom",
    hoverlabel: { bgcolor: theme.card, bordercolor: theme.quiet, font: { color: theme.ink, size: 12 } },
  });

  const charts = [...document.querySelectorAll("[data-chart]")];
  const specOf = (element) => {
    const spec = data.charts[element.dataset.chart];
    const series = spec.series || data.charts[spec.series_of].series;
    return { ...spec, series, series_count: series.length };
  };
  const draw = (element, width) => {
    const spec = specOf(element);
    const lines = spec.series.flatMap((series, position) => traces(spec, series, position));
    return Plotly.react(element, lines, layout(spec, width || element.clientWidth - 2 || 600), {
      displayModeBar: false, displaylogo: false, responsive: false, showTips: false, scrollZoom: false,
    });
  };
  const drawAll = (width) => charts.forEach((element) => draw(element, width));

  // One chart at a time, what is in sight first, so that the page can be read and scrolled from the first moment.
  const distance = (element) => {
    if (element.closest(".away")) return Infinity;
    const box = element.getBoundingClientRect();
    return Math.max(0, box.top - innerHeight, -box.bottom);
  };
  const waiting = charts.map((element) => [distance(element), element]).sort(([a], [b]) => (a === b ? 0 : a - b));
  const next = () => {
    const [away, element] = waiting.shift() || [Infinity];
    // What is in sight, and a screen more.
    if (away > innerHeight) root.dataset.shown = "true";
    if (!element) {
      root.dataset.ready = "true";
      return;
    }
    draw(element);
    setTimeout(next, 0);
  };
  requestAnimationFrame(() => setTimeout(next, 0));

  let widthBefore = innerWidth;
  let pending;
  addEventListener("resize", () => {
    if (innerWidth === widthBefore) return;
    widthBefore = innerWidth;
    clearTimeout(pending);
    pending = setTimeout(() => drawAll(), 150);
  });

  // ---- light, dark, paper ------------------------------------------------------------------------------------------
  const repaint = (width) => {
    theme = readTheme();
    drawAll(width);
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  document.querySelector(".theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
    root.dataset.theme = dark ? "light" : "dark";
    repaint();
  });
  system.addEventListener("change", () => repaint());
  const paper = matchMedia("print");
  paper.addEventListener("change", () => repaint());

  // ---- tabs --------------------------------------------------------------------------------------------------------
  for (const list of document.querySelectorAll("[role=tablist]")) {
    const tabs = [...list.querySelectorAll("[role=tab]")];
    const show = (chosen) => {
      for (const tab of tabs) {
        const selected = tab === chosen;
        tab.setAttribute("aria-selected", selected);
        tab.tabIndex = selected ? 0 : -1;
        document.getElementById(tab.getAttribute("aria-controls")).classList.toggle("away", !selected);
      }
      const panel = document.getElementById(chosen.getAttribute("aria-controls"));
      panel.querySelectorAll("[data-chart]").forEach((element) => draw(element));
    };
    tabs.forEach((tab, position) => {
      tab.addEventListener("click", () => show(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const other = tabs[(position + step + tabs.length) % tabs.length];
        other.focus();
        show(other);
      });
    });
  }

  // ---- tables that sort --------------------------------------------------------------------------------------------
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  // Missing values stay last whichever way a column is sorted.
  const ordered = (rows, value, descending) => rows.slice().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return x === null || y === null ? compare(x, y) : descending ? compare(y, x) : compare(x, y);
  });
  const mark = (heads, chosen, descending) => heads.forEach((head) => {
    if (head === chosen) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  for (const table of document.querySelectorAll("table.sorts")) {
    const heads = [...table.querySelectorAll("thead th")];
    const body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      const value = (row) => {
        const cell = row.cells[column];
        if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
        return head.classList.contains("number") ? null : cell.textContent;
      };
      body.replaceChildren(...ordered([...body.rows], value, descending));
      mark(heads, head, descending);
    }));
  }

  // ---- the per-class table -----------------------------------------------------------------------------------------
  const PAGE = 50;
  const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
  for (const holder of document.querySelectorAll("[data-class-table]")) {
    const table = data.class_tables[holder.dataset.classTable];
    const pick = (name) => holder.querySelector(`.${name}`);
    const [filter, unknown, rival, count, more] = ["filter", "unknown", "rival", "count", "more"].map(pick);
    const [[main, mainName], ...others] = table.methods;
    for (const name of Object.keys(table.measures)) unknown.append(make("option", name, { value: name }));
    for (const [name, shown] of others) rival.append(make("option", shown, { value: name }));
    rival.parentElement.hidden = others.length === 0;
    let sorted = { column: 0, descending: false };
    let room = PAGE;

    const columns = () => {
      const methods = table.measures[unknown.value];
      const of = (method, measure) => (row) => (methods[method] ? methods[method][measure][row] : null);
      const found = [
        { title: "Class", value: (row) => table.names[row], text: (v) => v, words: true },
        { title: "Knowns", value: (row) => table.count[row], text: (v) => v.toLocaleString("en") },
        { title: "Accuracy", value: (row) => table.accuracy[row], text: share },
        { title: `CCR, ${mainName}`, value: of(main, "ccr"), text: share },
      ];
      if (others.length) {
        const shown = others.find(([name]) => name === rival.value)[1];
        const [mine, theirs] = [of(main, "ccr"), of(rival.value, "ccr")];
        found.push({ title: `CCR, ${shown}`, value: theirs, text: share });
        found.push({
          title: "Difference", value: (row) => (mine(row) === null || theirs(row) === null ? null : mine(row) - theirs(row)),
          text: (v) => (v === null ? "–" : `${v < 0 ? "−" : "+"}${Math.abs(100 * v).toFixed(1)}`),
        });
      }
      found.push({ title: `F@C95, ${mainName}`, value: of(main, "f_at_c95"), text: share });
      return found;
    };
    const render = () => {
      const shown = columns();
      const word = filter.value.trim().toLowerCase();
      let rows = table.names.map((_, row) => row).filter((row) => table.names[row].toLowerCase().includes(word));
      rows = ordered(rows, shown[sorted.column].value, sorted.descending);
      const heads = shown.map((column, position) => {
        const head = make("th", undefined, { scope: "col", ...(column.words ? {} : { class: "number" }) });
        const button = head.appendChild(make("button", column.title, { type: "button" }));
        button.addEventListener("click", () => {
          const again = sorted.column === position;
          sorted = { column: position, descending: again ? !sorted.descending : !column.words };
          render();
          holder.querySelectorAll("thead button")[position].focus();
        });
        return head;
      });
      mark(heads, heads[sorted.column], sorted.descending);
      const line = make("tr");
      line.append(...heads);
      holder.querySelector("thead").replaceChildren(line);
      holder.querySelector("tbody").replaceChildren(...rows.slice(0, room).map((row) => {
        const made = make("tr");
        for (const column of shown) {
          const value = column.value(row);
          made.append(column.words ? make("th", value, { scope: "row" }) : make("td", column.text(value), { class: "number", "data-value": value }));
        }
        return made;
      }));
      count.textContent = `${Math.min(room, rows.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")} classes shown`;
      more.hidden = rows.length <= room;
    };
    filter.addEventListener("input", () => { room = PAGE; render(); });
    unknown.addEventListener("change", render);
    rival.addEventListener("change", render);
    more.addEventListener("click", () => { room *= 4; render(); });
    render();
  }

  // ---- heat maps: the value is read back from the colour -----------------------------------------------------------
  for (const image of document.querySelectorAll("[data-heat-map]")) {
    const map = data.heat_maps[image.dataset.heatMap];
    const value = image.parentElement.querySelector(".heat-value");
    const levels = new Map(map.palette.map((colour, level) => [colour.join(), level]));
    let context;
    image.addEventListener("pointermove", (event) => {
      if (!context) {
        const canvas = make("canvas", undefined, { width: map.width, height: map.height });
        context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(image, 0, 0, map.width, map.height);
      }
      const box = image.getBoundingClientRect();
      const [across, down] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      if (across < 0 || across >= 1 || down < 0 || down >= 1) return;
      const colour = context.getImageData(Math.floor(across * map.width), Math.floor(down * map.height), 1, 1).data;
      const level = levels.get([...colour.slice(0, 3)].join());
      const name = map.rows[Math.floor(down * map.rows.length)];
      const dimension = map.columns[Math.floor(across * map.columns.length)];
      const found = level === undefined || level >= map.values.length ? "not tested" : `W ≈ ${map.values[level].toPrecision(4)}`;
      value.textContent = `${name}, dimension ${dimension}: ${found}`;
      value.hidden = false;
      value.style.left = across < 0.5 ? `${100 * across + 2}%` : "auto";
      value.style.right = across < 0.5 ? "auto" : `${102 - 100 * across}%`;
      value.style.top = `${Math.min(100 * down, 88)}%`;
    });
    image.addEventListener("pointerleave", () => { value.hidden = true; });
  }

  // ---- where the reader is -----------------------------------------------------------------------------------------
  const links = new Map([...document.querySelectorAll(".contents a[href^='#']")].map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.classList.remove("here"));
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "0px 0px -75% 0px" });
  links.forEach((_, id) => { const target = document.getElementById(id); if (target) seen.observe(target); });
})();
