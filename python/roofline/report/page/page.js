// What moves on the page: the theme, the pictures, the operators' table, the maps. Names reach the page as text only.
"use strict";
(async () => {
  const $ = (query, within = document) => [...within.querySelectorAll(query)];
  const one = (query) => document.querySelector(query);
  const data = JSON.parse(one("#data").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads some tags in its labels
  const hover = (lines) => lines.map(plain).join("<br>");
  const PREFIXES = { "-12": "p", "-9": "n", "-6": "µ", "-3": "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P" };
  const si = (value, unit) => {
    const three = Math.min(Math.max(Math.floor(Math.log10(value) / 3) * 3, -12), 15);
    return `${Number((value / 10 ** three).toPrecision(3))} ${PREFIXES[three]}${unit}`;
  };

  // -- which points and ceilings are on
  const boxes = $("[data-ceiling]");
  const on = () => boxes.filter((box) => box.checked).map((box) => data.ceilings[box.dataset.ceiling]);
  let shown = () => true; // by row of the operators' table

  // The ceiling that bounds a point, among those that are on: the longest time that one of them asks for. Of a level and of a dtype
  // the fastest counts; where a point's own level is off, the next faster one does.
  const anchor = (point, ceilings) => {
    const fastest = (found) => found.reduce((a, b) => (a && a.rate >= b.rate ? a : b), undefined);
    const terms = [];
    const compute = fastest(ceilings.filter((c) => c.kind === "compute" && c.dtype === point.roof));
    if (compute) terms.push([point.flops / compute.rate, compute]);
    for (const level of data.levels.slice(Math.max(data.levels.indexOf(point.level), 0))) {
      const held = ceilings.filter((c) => c.kind === "bandwidth" && c.level === level);
      const own = held.filter((c) => c.access === point.access);
      const memory = fastest(own.length ? own : held);
      if (memory) { terms.push([point.bytes / memory.rate, memory]); break; }
    }
    const link = point.link ? fastest(ceilings.filter((c) => c.kind === "link")) : undefined;
    if (link) terms.push([point.link / link.rate, link]);
    const floors = point.alone ? [] : ceilings.filter((c) => c.kind === "latency");
    const floor = floors.reduce((a, b) => (a && a.rate <= b.rate ? a : b), undefined);
    if (floor) terms.push([floor.rate, floor]);
    return terms.reduce((a, b) => (a && a[0] >= b[0] ? a : b), undefined);
  };

  const wide = () => innerWidth >= 700; // room for names in the picture
  const axis = (title, more) => ({
    type: "log", title: { text: title }, gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, automargin: true,
    exponentformat: "power", dtick: 1, ...more,
  });
  const layout = (x, y) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), size: 12, family: "system-ui, sans-serif" },
    margin: { l: 56, r: 12, t: 28, b: 48 }, xaxis: x, yaxis: y, hovermode: "closest", showlegend: wide(),
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("ink") },
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") }, align: "left" },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", font: { size: 11 } },
  });
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star", "pentagon", "hexagon", "bowtie"];
  const dtypes = [...new Set([...data.points.map((p) => p.dtype), ...data.ceilings.map((c) => c.dtype)])].filter(Boolean);
  const shade = (dtype) => colour(`c${dtypes.includes(dtype) ? dtypes.indexOf(dtype) % 7 : 6}`);
  const places = new Map(); // row -> [trace, point] of the roofline

  const drawRoofline = () => {
    const ceilings = on(), points = data.points.filter((p) => shown(p.row));
    const rates = data.ceilings.filter((c) => c.kind === "compute").map((c) => c.rate);
    const slopes = data.ceilings.filter((c) => c.kind === "bandwidth").map((c) => c.rate);
    const xs = data.points.map((p) => p.x);
    const top = Math.max(...rates, ...data.points.map((p) => p.y), ...(rates.length ? [] : slopes), 1);
    const ridge = rates.length && slopes.length ? Math.max(...rates) / Math.min(...slopes) : 1;
    const left = Math.min(...xs, ridge, 0.25) / 2, right = Math.max(...xs, ridge) * 2;
    const low = Math.min(...data.points.map((p) => p.y), ...(slopes.length ? [left * Math.min(...slopes)] : [])) / 2;
    const traces = [];
    const peak = Math.max(...ceilings.filter((c) => c.kind === "compute").map((c) => c.rate), 0) || top;
    const steepest = Math.max(...ceilings.filter((c) => c.kind === "bandwidth").map((c) => c.rate), 0);
    const taken = [], text = Math.log10((top * 3) / low) / 34; // decades that a label is high
    const side = (rate) => [["top left", 0.5], ["bottom left", -0.5]].find(([, up]) => {
      const at = Math.log10(rate) + up * text, free = taken.every((other) => Math.abs(other - at) >= text);
      if (free) taken.push(at);
      return free;
    })?.[0];
    for (const c of ceilings.filter((each) => each.kind === "bandwidth" || each.kind === "compute")) {
      c.modes.forEach((rate, index) => {
        const flat = c.kind === "compute";
        const from = flat ? (steepest ? Math.max(rate / steepest, left) : left) : left, to = flat ? right : Math.min(peak / rate, right);
        const x = Array.from({ length: 25 }, (_, i) => from * (to / from) ** (i / 24));
        traces.push({
          x, y: flat ? x.map(() => rate) : x.map((each) => each * rate), mode: "lines", showlegend: false, hoverinfo: "text",
          hovertext: hover([c.label, c.spread]), meta: "ceiling",
          line: { color: flat ? shade(c.dtype) : colour("ink"), width: index ? 0.8 : 1.6, dash: index ? "dot" : "solid" },
        });
        if (index || !wide()) return;
        const place = flat ? side(rate) : c.access === "read" && "bottom right";
        const lowest = Math.min(...ceilings.filter((each) => each.level === c.level && !flat).map((each) => each.rate));
        if (place) traces.push({
          x: [flat ? right : left * 1.03], y: [flat ? rate * 1.03 : left * 1.03 * lowest], mode: "text", text: [plain(c.label)], showlegend: false,
          textposition: place, textfont: { size: 10, color: flat ? shade(c.dtype) : colour("muted") },
          hoverinfo: "skip", cliponaxis: true,
        });
      });
    }
    const bounds = new Map(), ties = { x: [], y: [] };
    const anchors = new Map(points.map((p) => [p, anchor(p, ceilings)]));
    for (const [p, found] of anchors) {
      const name = found ? found[1].name : "nothing that is on";
      bounds.set(name, (bounds.get(name) || 0) + 1);
      if (found) { ties.x.push(p.x, p.x, null); ties.y.push(p.y, p.flops / found[0], null); }
    }
    traces.push({ ...ties, mode: "lines", line: { color: colour("muted"), width: 0.8 }, hoverinfo: "skip", showlegend: false, meta: "anchors" });
    places.clear();
    [...new Set(data.points.map((p) => p.operator))].forEach((operator, index) => {
      const own = points.filter((p) => p.operator === operator).sort((a, b) => b.ok - a.ok); // the first one's marker is the legend's
      if (!own.length) return;
      own.forEach((p, at) => places.set(p.row, [traces.length, at]));
      traces.push({
        x: own.map((p) => p.x), y: own.map((p) => p.y), mode: "markers", name: plain(operator), hoverinfo: "text", meta: "points",
        customdata: own.map((p) => p.row),
        hovertext: own.map((p) => {
          const found = anchors.get(p);
          const share = found ? `${Number((100 * found[0] / p.time).toPrecision(3))} % of ${found[1].label}` : "no ceiling that bounds it is on";
          return hover([...p.hover, share]);
        }),
        marker: {
          size: 9, symbol: own.map((p) => SYMBOLS[index % SYMBOLS.length] + (p.ok ? "" : "-open")), color: own.map((p) => shade(p.dtype)),
          line: { width: own.map((p) => (p.ok ? 0.5 : 1.5)), color: own.map((p) => (p.ok ? colour("ground") : shade(p.dtype))) },
        },
      });
    });
    const range = (a, b) => [Math.log10(a), Math.log10(b)];
    Plotly.react("chart", traces, layout(
      axis("arithmetic intensity, FLOP/byte", { range: range(left, right) }), axis("FLOP/s", { range: range(low, top * 3) })), config);
    one("#bounds").textContent = `Bound by: ${[...bounds].map(([name, n]) => `${name} ${n}`).join(", ") || "no point is shown"}.`;
  };

  const drawErrors = () => {
    const all = data.predicted.flatMap((p) => [p.x, p.y]), ends = [Math.min(...all) / 1.5, Math.max(...all) * 1.5];
    const line = (factor, dash, name) => ({
      x: ends, y: ends.map((end) => end * factor), mode: "lines", name, hoverinfo: "skip", line: { color: colour("muted"), width: 1, dash },
      showlegend: Boolean(name),
    });
    const traces = [line(1, "solid", "as predicted"), line(data.near, "dot", `× ${data.near} and ÷ ${data.near}`), line(1 / data.near, "dot", "")];
    [...new Set(data.predicted.map((p) => p.operator))].forEach((operator, index) => {
      const own = data.predicted.filter((p) => p.operator === operator);
      traces.push({
        x: own.map((p) => p.x), y: own.map((p) => p.y), mode: "markers", name: plain(operator), hoverinfo: "text",
        hovertext: own.map((p) => hover(p.hover)),
        marker: { size: 8, color: colour(`c${index % 7}`), symbol: own.map((p) => SYMBOLS[index % SYMBOLS.length] + (p.ok ? "" : "-open")) },
      });
    });
    const range = ends.map(Math.log10), seconds = { range, exponentformat: "SI", ticksuffix: "s" };
    Plotly.react("errors", traces, layout(axis("predicted", seconds), axis("measured", seconds)), config);
  };

  const drawMaps = () => {
    const quantity = Number(one("#quantity").value);
    for (const table of $(".map")) {
      const cells = $("[data-values]", table);
      const values = cells.map((cell) => JSON.parse(cell.dataset.values)[quantity]).filter((value) => value !== null);
      const low = Math.min(...values), high = Math.max(...values);
      for (const cell of cells) {
        const value = JSON.parse(cell.dataset.values)[quantity];
        const part = value === null || high === low ? 0 : Math.log(value / low) / Math.log(high / low);
        cell.textContent = JSON.parse(cell.dataset.texts)[quantity];
        cell.style.backgroundColor = `rgba(${colour("heat")}, ${(0.45 * part).toFixed(3)})`;
      }
    }
  };

  let ready = false;
  const draw = () => {
    if (one("#quantity")) drawMaps();
    if (!ready) return;
    if (one("#chart")) drawRoofline();
    if (one("#errors")) drawErrors();
  };

  // -- theme: the system's, until the button says otherwise
  const button = one("#theme");
  const setTheme = (name) => {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark"; // what a click gives
    draw();
  };
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  button.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  let before = "";
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    $("details").forEach((each) => { each.open = true; });
    setTheme("light");
    if (ready) $(".chart").forEach((each) => Plotly.relayout(each, { width: 680, height: each.id === "chart" ? 600 : 480 }));
  });
  addEventListener("afterprint", () => {
    setTheme(before);
    if (ready) $(".chart").forEach((each) => Plotly.relayout(each, { width: null, height: null, autosize: true }));
  });

  // -- the operators' table
  const table = one("#table");
  if (table) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const key = (row, column) => {
      const cell = row.cells[column];
      return cell.dataset.key === undefined ? cell.textContent.trim() : Number(cell.dataset.key);
    };
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const down = head.ariaSort === "ascending";
      heads.forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => (down ? -1 : 1) * compare(key(a, column), key(b, column)));
      body.append(...rows);
    }));
    const filter = () => {
      const words = one("#words").value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = $("[data-filter]").filter((select) => select.value);
      const visible = new Set();
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        const kept = words.every((word) => text.includes(word)) && wanted.every((select) => row.dataset[select.dataset.filter] === select.value);
        row.hidden = !kept;
        if (kept) visible.add(Number(row.dataset.row));
      }
      one("#count").textContent = `${visible.size} of ${rows.length}`;
      shown = (row) => visible.has(row);
      if (ready && one("#chart")) drawRoofline();
    };
    one("#filter").addEventListener("input", filter);
    one("#filter").addEventListener("submit", (event) => event.preventDefault());
    $(".show", table).forEach((each) => each.addEventListener("click", () => {
      const row = Number(each.closest("tr").dataset.row), point = data.points.find((p) => p.row === row);
      one("#detail").textContent = point ? point.hover.join("; ") : "It has no place in the roofline: no FLOPs, or no time.";
      one("#roofline").scrollIntoView();
      if (ready && places.has(row)) Plotly.Fx.hover("chart", [{ curveNumber: places.get(row)[0], pointNumber: places.get(row)[1] }]);
    }));
  }
  matchMedia("(min-width: 700px)").addEventListener("change", draw);
  if (one("#quantity")) one("#quantity").addEventListener("change", drawMaps);
  boxes.forEach((box) => box.addEventListener("change", drawRoofline));

  // -- plotly, unpacked here: the file is then less than half as large
  if (one("#chart") || one("#errors")) {
    try {
      const packed = Uint8Array.from(atob(one("#plotly").textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      ready = true;
      draw();
    } catch (error) {
      $(".chart").forEach((each) => { each.textContent = `This browser cannot draw the picture (${error}); the tables hold its numbers.`; });
    }
  }
  if (one("#chart") && ready) one("#chart").on("plotly_click", (event) => {
    const point = data.points.find((p) => p.row === event.points[0].customdata);
    if (point) one("#detail").textContent = point.hover.join("; ");
  });
  root.dataset.ready = "yes";
})();
