// Asks for new looks once a second and shows them: figures, plots, tables, doubts. Which ones is
// told by #page as data; this knows units and where values stand in what is answered. Each value
// that is shown is a `data` element that holds the exact one.
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

  let looks = [];
  let next = 0;
  let plots = [];

  const column = (path) => looks.map((look) => at(look, path) ?? null);
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

  const figures = (told, look) => {
    for (const { id: name, path, unit, of } of page.figures) {
      id(`figure-${name}`).replaceChildren(datum(at(of === "look" ? look : told, path), unit));
    }
  };
  // The figures of the plots as a table, the latest first.
  const table = () => {
    rows("looks", looks.slice(-ROWS).reverse().map((look) => row([
      datum(look.at_s, "seconds"),
      ...page.plots.flatMap((plot) => plot.series.map(({ path }) => datum(at(look, path), plot.unit))),
    ])));
  };
  const ended = (told) => {
    if (!page.parts) return;
    rows("ended", told.ended.slice().reverse().map((part) => row([
      datum(part.index + 1, "count"), part.name || told.part_is, datum(part.offered_rate, "rate"),
      datum(part.achieved_rate, "rate"), datum(part.sent, "count"), datum(part.received, "count"),
      datum(part.lost, "count"), datum(part.latency_ns?.p50, "ns"), datum(part.latency_ns?.p99, "ns"),
    ])));
    rows("places", Object.entries(told.lost_at).map(([place, lost]) => row([place.replaceAll("_", " "), datum(lost, "count")])));
  };
  // All numbers and texts of the state under the names that they have there.
  const flat = (value, path) => (value !== null && typeof value === "object"
    ? Object.entries(value).flatMap(([key, inner]) => flat(inner, path ? `${path}.${key}` : key))
    : [[path, value]]);
  const status = (told) => {
    if (!page.status) return;
    rows("status", flat(told.status, "").map(([path, value]) => row([path, datum(value, typeof value === "number" ? "count" : "text")])));
  };
  let found = "";
  const findings = (told) => {
    // A screen reader says them anew each time that they are set.
    const now = JSON.stringify(told.findings);
    if (now === found) return;
    found = now;
    const items = told.findings.map((finding) => {
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
  const take = (told) => {
    id("title").textContent = told.title;
    if (told.first > next || told.next < next) looks = [];
    looks = looks.concat(told.looks).slice(-KEPT);
    next = told.next;
    const look = looks[looks.length - 1];
    if (look) figures(told, look);
    plots.forEach(({ plot, drawn }) => drawn.setData(data(plot)));
    table();
    ended(told);
    status(told);
    findings(told);
    root.dataset.next = next;
    say(told.state === "ended" ? "It is over; these are the last figures." : told.lead ?? "Running", `state-${told.state}`);
  };

  // The token stands in the link; from here on it goes in a header.
  const given = /[?&]token=([^&]*)/.exec(location.search);
  const headers = given ? { Authorization: `Bearer ${decodeURIComponent(given[1])}` } : {};
  const ask = async () => {
    let wait = EVERY_MS;
    try {
      const answer = await fetch(`live.json?since=${next}`, { headers, cache: "no-store" });
      if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
      const told = await answer.json();
      // It was started anew: what it has from the beginning is another run's.
      if (told.next < next) next = 0;
      else take(told);
    } catch (error) {
      say(`No answer (${error.message}): it is over, or cannot be reached. These are the last figures.`, "gone");
      wait = 5 * EVERY_MS;
    }
    setTimeout(ask, wait);
  };
  mountAll();
  ask();
})();
