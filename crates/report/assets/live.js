// Requests new snapshots once a second and shows them: values, plots, tables, findings. #page says
// which ones, as data; this knows units and the paths of values in the response. Each value shown
// is a `data` element that holds the exact one.
"use strict";
(() => {
  const EVERY_MS = 1000;
  const KEPT = 1200;
  const ROWS = 20;
  const HEIGHT = 280;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const STYLES = ["solid", "dashed", "dotted", "double"];
  const NONE = "–";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const id = (name) => document.getElementById(name);
  const page = JSON.parse(id("page").textContent);

  const digits = (value) => String(Number(value.toPrecision(3)));
  const scaled = (value, units) => {
    let power = 0;
    let size = Math.abs(value);
    while (size >= 999.5 && power < units.length - 1) {
      size /= 1000;
      power += 1;
    }
    return `${value < 0 ? "−" : ""}${digits(size)} ${units[power]}`.trim();
  };
  const UNITS = {
    count: (value) => value.toLocaleString("en"),
    rate: (value) => `${scaled(value, ["", "k", "M", "G", "T"])}/s`,
    ns: (value) => scaled(value, ["ns", "µs", "ms", "s"]),
    share: (value) => `${digits(value * 100)}%`,
    seconds: (value) => `${digits(value)} s`,
    text: String,
  };
  const at = (object, path) => path.split(".").reduce((inner, key) => inner?.[key], object);
  const shown = (value, unit) => (value == null || Number.isNaN(value) ? NONE : UNITS[unit](value));
  const make = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });
  // A value as a person reads it, with the exact one beside it.
  const datum = (value, unit) => make("data", shown(value, unit), { value: value == null ? "" : String(value) });

  let snapshots = [];
  let next = 0;
  let plots = [];

  const column = (path) => snapshots.map((snapshot) => at(snapshot, path) ?? null);
  // A logarithmic axis has no place for 0, which is drawn as the least that there is.
  const placed = (plot, value) => (plot.log && value != null ? Math.max(value, 1) : value);
  const data = (plot) => [
    column("at_s"),
    ...plot.series.map((series) => column(series.path).map((value) => placed(plot, value))),
  ];
  const axis = (unit) => ({
    stroke: colour("muted"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("grid"), width: 1 },
    size: 70,
    values: (u, ticks) => ticks.map((tick) => (tick == null ? "" : UNITS[unit](tick))),
  });
  // An empty plot, and one that is flat, need a range all the same.
  const range = (plot) => (u, min, max) => {
    if (min == null || max == null || max <= 0) return plot.log ? [1, 10] : [0, 1];
    return plot.log ? [Math.max(1, min) / 1.3, Math.max(1, max) * 1.3] : [0, max * 1.08];
  };
  // A line is drawn between two values; one that has none on either side is drawn as a point.
  const lone = (u, index) => {
    const values = u.data[index];
    return values.flatMap((value, at) => (value != null && values[at - 1] == null && values[at + 1] == null ? [at] : []));
  };
  const options = (plot, width) => ({
    width,
    height: HEIGHT,
    padding: [10, 20, 0, 0],
    scales: { x: { time: false }, y: { distr: plot.log ? 3 : 1, range: range(plot) } },
    axes: [axis("seconds"), axis(plot.unit)],
    legend: { markers: { dash: (u, index) => STYLES[(index - 1) % STYLES.length] } },
    series: [
      { label: "at", value: (u, value) => shown(value, "seconds") },
      ...plot.series.map((series, index) => ({
        label: series.label,
        stroke: colour(`series-${index % 8}`),
        width: 2,
        dash: DASHES[index % DASHES.length],
        points: { show: true, filter: lone, size: 5, fill: colour(`series-${index % 8}`) },
        value: (u, value) => shown(value, plot.unit),
      })),
    ],
  });
  const mount = (plot) => {
    const chart = id(`plot-${plot.id}`);
    chart.replaceChildren();
    const drawn = new uPlot(options(plot, chart.clientWidth), data(plot), chart);
    const wrap = chart.querySelector(".u-wrap");
    wrap.setAttribute("role", "img");
    wrap.setAttribute("aria-label", chart.getAttribute("aria-label"));
    return { plot, drawn, chart };
  };
  const mountAll = () => {
    plots.forEach(({ drawn }) => drawn.destroy());
    plots = page.plots.map(mount);
  };
  addEventListener("resize", () => {
    plots.forEach(({ drawn, chart }) => drawn.setSize({ width: chart.clientWidth, height: HEIGHT }));
  });
  dark.addEventListener("change", mountAll);

  const row = (cells) => {
    const tr = document.createElement("tr");
    tr.append(...cells.map((cell, index) => {
      const td = document.createElement(index === 0 ? "th" : "td");
      if (index === 0) td.scope = "row";
      td.append(cell);
      return td;
    }));
    return tr;
  };
  const rows = (body, all) => id(body).replaceChildren(...all);

  const figures = (state, snapshot) => {
    for (const { id: name, path, unit, of } of page.figures) {
      id(`figure-${name}`).replaceChildren(datum(at(of === "snapshot" ? snapshot : state, path), unit));
    }
  };
  // The figures of the plots as a table, the latest first.
  const table = () => {
    rows("snapshots", snapshots.slice(-ROWS).reverse().map((snapshot) => row([
      datum(snapshot.at_s, "seconds"),
      ...page.plots.flatMap((plot) => plot.series.map(({ path }) => datum(at(snapshot, path), plot.unit))),
    ])));
  };
  const ended = (state) => {
    if (!page.parts) return;
    rows("ended", state.ended.slice().reverse().map((part) => row([
      datum(part.index + 1, "count"), part.name || state.part_kind, datum(part.intended_rate, "rate"),
      datum(part.achieved_rate, "rate"), datum(part.sent, "count"), datum(part.received, "count"),
      datum(part.lost, "count"), datum(part.latency_ns?.p50, "ns"), datum(part.latency_ns?.p99, "ns"),
    ])));
    rows("locations", Object.entries(state.lost_at).map(([location, lost]) => row([location.replaceAll("_", " "), datum(lost, "count")])));
  };
  // All numbers and texts of the state under the names that they have there.
  const flat = (value, path) => (value !== null && typeof value === "object"
    ? Object.entries(value).flatMap(([key, inner]) => flat(inner, path ? `${path}.${key}` : key))
    : [[path, value]]);
  const status = (state) => {
    if (!page.status) return;
    rows("status", flat(state.status, "").map(([path, value]) => row([path, datum(value, typeof value === "number" ? "count" : "text")])));
  };
  let found = "";
  const findings = (state) => {
    // A screen reader says them anew each time that they are set.
    const now = JSON.stringify(state.findings);
    if (now === found) return;
    found = now;
    const items = state.findings.map((finding) => {
      const item = make("li", "", { className: finding.severity });
      item.append(make("span", finding.severity, { className: "severity" }), ` ${finding.message} `, make("span", finding.advice, { className: "advice" }));
      return item;
    });
    id("findings").replaceChildren(...(items.length ? items : [make("li", "None so far.", { className: "none" })]));
  };
  const say = (text, kind) => {
    const state = id("state");
    const name = `lead ${kind}`;
    if (state.textContent !== text) state.textContent = text;
    if (state.className !== name) state.className = name;
  };
  const take = (state) => {
    id("title").textContent = state.title;
    if (state.first > next || state.next < next) snapshots = [];
    snapshots = snapshots.concat(state.snapshots).slice(-KEPT);
    next = state.next;
    const snapshot = snapshots[snapshots.length - 1];
    if (snapshot) figures(state, snapshot);
    plots.forEach(({ plot, drawn }) => drawn.setData(data(plot)));
    table();
    ended(state);
    status(state);
    findings(state);
    root.dataset.next = next;
    say(state.state === "ended" ? "Finished; these are the last values." : state.lead ?? "Running", `state-${state.state}`);
  };

  // The token stands in the link; from here on it goes in a header.
  const given = /[?&]token=([^&]*)/.exec(location.search);
  const headers = given ? { Authorization: `Bearer ${decodeURIComponent(given[1])}` } : {};
  const ask = async () => {
    let wait = EVERY_MS;
    try {
      const answer = await fetch(`live.json?since=${next}`, { headers, cache: "no-store" });
      if (!answer.ok) throw new Error(`HTTP status ${answer.status}`);
      const state = await answer.json();
      // It was started anew: what it has from the beginning is another run's.
      if (state.next < next) next = 0;
      else take(state);
    } catch (error) {
      say(`No response (${error.message}): finished or unreachable. These are the last values.`, "gone");
      wait = 5 * EVERY_MS;
    }
    setTimeout(ask, wait);
  };
  mountAll();
  ask();
})();
