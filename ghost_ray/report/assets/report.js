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

  // ---- charts ------------------------------------------------------------------------------------------------------
  const specOf = (id) => {
    const spec = data.charts[id];
    return { ...spec, series: spec.series || data.charts[spec.series_of].series };
  };
  const charts = new Map();
  for (const element of document.querySelectorAll("[data-chart]")) {
    const chart = Chart.create(element, specOf(element.dataset.chart));
    pointing(chart);
    charts.set(element, chart);
  }
  const within = (element) => [...element.querySelectorAll("[data-chart]")].map((one) => charts.get(one));
  // Charts of a panel show the same methods and share a legend; small ones are explained once for all.
  for (const panel of document.querySelectorAll(".panel")) panel.prepend(Chart.legend(within(panel)));
  for (const [element, chart] of charts) {
    if (chart.spec.series.length > 1 && !chart.spec.horizontal && !element.closest(".panel, .small")) element.after(Chart.legend([chart]));
  }

  // Visible charts first, a few at a time, so that the page can be read and scrolled at once.
  const distance = (element) => {
    if (element.closest(".away")) return Infinity;
    const box = element.getBoundingClientRect();
    return Math.max(0, box.top - innerHeight, -box.bottom);
  };
  const waiting = [...charts.keys()].map((element) => [distance(element), element]).sort(([a], [b]) => (a === b ? 0 : a - b));
  const drawSome = () => {
    const until = performance.now() + 25;
    do {
      const [away, element] = waiting.shift() || [Infinity];
      if (away > 0) root.dataset.shown = "true";
      if (!element) {
        root.dataset.ready = "true";
        return;
      }
      Chart.draw(charts.get(element));
    } while (performance.now() < until);
    setTimeout(drawSome, 0);
  };
  drawSome();
  const drawAll = () => charts.forEach((chart) => { if (chart.element.clientWidth !== chart.width) Chart.draw(chart); });

  let pending;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(drawAll, 100);
  });

  // ---- light, dark, paper ------------------------------------------------------------------------------------------
  const system = matchMedia("(prefers-color-scheme: dark)");
  document.querySelector(".theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  // A sheet has room for two charts beside each other, or one across; the letters keep their size.
  addEventListener("beforeprint", () => charts.forEach((chart) => {
    const wide = !chart.element.closest(".grid:not(.single)");
    Chart.draw(chart, { width: wide ? 680 : 330, height: Math.min(chart.spec.height, 260) });
  }));
  addEventListener("afterprint", () => charts.forEach((chart) => Chart.draw(chart)));

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
      within(panel).forEach((chart) => { if (chart.element.clientWidth !== chart.width) Chart.draw(chart); });
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
