// Draws the plots that the page describes as data in #plots and lets #result be saved. What is
// plotted is decided where the page is made; this knows scales, units and colours only.
"use strict";
(() => {
  const HEIGHT = 340;
  // More than there are colours, so that no two of a plot's first sixteen are alike without them.
  const DASHES = [
    [], [8, 4], [2, 3], [10, 3, 2, 3], [18, 4], [5, 2], [10, 3, 2, 3, 2, 3], [2, 7],
    [14, 10], [22, 3, 6, 3], [6, 9], [4, 2, 4, 8], [16, 3, 2, 3, 2, 3, 2, 3], [2, 2, 2, 8],
    [26, 8], [8, 2, 2, 2, 8, 8],
  ];
  const COLOURS = 8;
  // What is still left over is told apart by how thick it is.
  const styleOf = (index) => ({
    colour: `series-${index % COLOURS}`,
    dash: DASHES[index % DASHES.length],
    width: index < DASHES.length ? 2 : 3.5,
  });
  const SVG = "http://www.w3.org/2000/svg";
  const NEAR_PX = 40;
  const LONG_S = 600;
  const TIMES = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const NONE = "–";
  const PREFIXES = ["", "k", "M", "G", "T"];
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const text = (id) => document.getElementById(id).textContent;

  // Three significant digits without trailing zeros, so that ticks stay short.
  const digits = (value) => String(Number(value.toPrecision(3)));
  const scaled = (value, units) => {
    let power = 0;
    while (Math.abs(value) >= 999.5 && power < units.length - 1) {
      value /= 1000;
      power += 1;
    }
    return `${digits(value)} ${units[power]}`.trim();
  };
  const UNITS = {
    count: (value) => `${value}`,
    rate: (value) => `${scaled(value, PREFIXES)}/s`.replace(" /", "/"),
    ns: (value) => scaled(value, ["ns", "µs", "ms", "s"]),
    // Offsets may differ by little from a large one, so more digits than elsewhere.
    signed: (value) => {
      const size = Math.abs(value);
      const power = Math.min(3, Math.max(0, Math.floor(Math.log10(size || 1) / 3)));
      const shown = Number((size / 1000 ** power).toPrecision(7));
      return `${value < 0 ? "−" : value > 0 ? "+" : ""}${shown} ${["ns", "µs", "ms", "s"][power]}`;
    },
    scientific: (value) => value.toExponential(1),
    share: (value) => (value > 0 && value < 1e-6 ? "<0.0001%" : `${digits(value * 100)}%`),
    times: (value) => `${digits(value)} ×`,
    seconds: (value) => `${Number(value.toPrecision(6))} s`,
    // Since a beginning: long ones with minutes and hours.
    time: (value) => {
      if (value < LONG_S) return UNITS.seconds(value);
      const rounded = Number(value.toPrecision(9));
      const parts = [
        [Math.floor(rounded / 3600), "h"],
        [Math.floor(rounded / 60) % 60, "min"],
        [Number((rounded % 60).toFixed(3)), "s"],
      ];
      return parts.filter(([count]) => count > 0).map((part) => part.join(" ")).join(" ");
    },
    // One in `value` requests took longer; as many decimals as tell it from its neighbours.
    tail: (value) => `${Number((100 - 100 / value).toFixed(Math.ceil(Math.log10(value))))}%`,
  };

  const steps = (min, max, multiples) => {
    const ticks = [];
    for (let e = Math.floor(Math.log10(min)); e <= Math.ceil(Math.log10(max)); e += 1) {
      for (const m of multiples) {
        const tick = Number(`${m}e${e}`);
        if (tick >= min && tick <= max) ticks.push(tick);
      }
    }
    return ticks;
  };
  const multiples = (min, max, step) => {
    const ticks = [];
    for (let i = Math.ceil(min / step); i * step <= max; i += 1) ticks.push(i * step);
    return ticks;
  };
  const evenTicks = (min, max, least) => {
    const rough = (max - min) / 5 || 1;
    const base = 10 ** Math.floor(Math.log10(rough));
    return multiples(min, max, Math.max([1, 2, 5, 10].map((m) => m * base).find((s) => s >= rough), least));
  };
  // Ticks as dense as labels of `room` pixels allow on `length` pixels.
  const logTicks = (min, max, length, room) => {
    const decades = Math.log10(max / min);
    if (decades < 0.6) return evenTicks(min, max, 0);
    const labels = length / decades / room;
    if (labels > 8) return steps(min, max, [1, 2, 3, 4, 5, 6, 8]);
    if (labels > 3.3) return steps(min, max, [1, 2, 5]);
    const stride = Math.ceil(1 / labels);
    return steps(min, max, [1]).filter((tick) => Math.round(Math.log10(tick)) % stride === 0);
  };
  // Linear below `knee`, logarithmic above: 0 has a place, and one in ten thousand is visible.
  const kneeTicks = (knee) => (min, max) => [
    ...(min <= 0 ? [0] : []),
    ...steps(Math.max(min, knee), Math.max(max, knee), [1]),
  ];

  // A time on a logarithmic axis is no place in a run.
  const isTime = (axis) => axis.unit === "seconds" && axis.scale === "linear";
  const unitOf = (axis) => UNITS[isTime(axis) ? "time" : axis.unit];
  const timeTicks = (min, max, length) => {
    const rough = (max - min) / Math.min(6, Math.max(2, length / 110));
    const step = TIMES.find((one) => one >= rough);
    if (max < LONG_S || rough < 30) return evenTicks(min, max, 0);
    return multiples(min, max, step ?? Math.ceil(rough / 86400) * 86400);
  };
  // There is no half of what is counted.
  const ticksOf = (axis) => (axis.unit === "seconds"
    ? timeTicks
    : (min, max) => evenTicks(min, max, axis.unit === "count" ? 1 : 0));

  const SCALES = {
    linear: (axis) => ({
      scale: { distr: 1 },
      ticks: ticksOf(axis),
      // Where all values are one, it stands in the middle.
      pad: (min, max) => {
        const margin = (max - min) * 0.04 || Math.abs(min) * 0.1 || 1;
        return [min - margin, max + margin];
      },
    }),
    zero: (axis) => ({
      scale: { distr: 1 },
      ticks: ticksOf(axis),
      pad: (min, max) => [0, max * 1.08 || 1],
    }),
    log: () => ({
      scale: { distr: 3, log: 10 },
      ticks: logTicks,
      pad: (min, max) => {
        const margin = Math.max((max / min) ** 0.04, 1.1);
        return [min / margin, max * margin];
      },
    }),
    knee: (axis) => ({
      scale: { distr: 4, asinh: axis.knee },
      ticks: kneeTicks(axis.knee),
      pad: (min, max) => [0, Math.max(max * 1.35, axis.knee * 20)],
    }),
  };

  const scaleOf = (axis, isX) => {
    const { scale, pad } = SCALES[axis.scale](axis);
    // A range that was zoomed to stays as it was drawn; only the whole gets a margin.
    const range = (u, min, max) => {
      if (min == null || max == null) return [1, 10];
      const xs = u.data[0];
      const whole = !isX || (min === xs[0] && max === xs[xs.length - 1]);
      return whole ? pad(min, max) : [min, max];
    };
    return { ...scale, time: false, range };
  };

  const axisOf = (axis, isX) => ({
    label: axis.label,
    labelSize: isX ? 26 : 24,
    labelFont: "13px system-ui, sans-serif",
    font: "12px system-ui, sans-serif",
    size: isX ? 34 : 72,
    stroke: colour("muted"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("rule"), width: 1, size: 5 },
    splits: (u, index, min, max) => {
      const [length, room] = isX ? [u.width - 110, 66] : [u.height - 80, 26];
      return SCALES[axis.scale](axis).ticks(min, max, length, room);
    },
    filter: (u, splits) => splits,
    values: (u, splits) => splits.map(unitOf(axis)),
  });

  // The place nearest to a value of x, as far as it goes, of those at which `isOne` is.
  const nearestPlace = (u, x, far, isOne) => {
    const left = u.valToPos(x, "x");
    let best = null;
    let distance = far;
    u.data[0].forEach((place, at) => {
      const away = Math.abs(u.valToPos(place, "x") - left);
      if (away < distance && isOne(at)) [best, distance] = [at, away];
    });
    return best;
  };

  // The point of a series nearest to the pointer, as series need not share their x values; where it
  // has none near, what it has in the place where some other line has one.
  const nearest = (u, series, hovered, x) => {
    if (hovered == null) return hovered;
    const own = series > 0
      ? nearestPlace(u, x, NEAR_PX, (at) => u.data[series][at] != null)
      : null;
    const isPoint = (at) => u.data.some((ys, other) => other > 0 && ys[at] != null);
    return own ?? nearestPlace(u, x, Infinity, isPoint) ?? hovered;
  };

  const drawMarks = (marks) => (u) => {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = colour("muted");
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 4 * ratio]);
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    for (const mark of marks) {
      const vertical = mark.axis === "x";
      const at = Math.round(u.valToPos(mark.at, mark.axis, true));
      ctx.beginPath();
      ctx.moveTo(vertical ? at : left, vertical ? top : at);
      ctx.lineTo(vertical ? at : left + width, vertical ? top + height : at);
      ctx.stroke();
      const flip = vertical && at > left + width / 2;
      ctx.textAlign = flip ? "right" : "left";
      const x = vertical ? at + (flip ? -6 : 6) * ratio : left + 6 * ratio;
      const y = vertical ? top + 14 * ratio : at - 7 * ratio;
      // On a ground of its own, since lines may run below it.
      ctx.save();
      ctx.setLineDash([]);
      ctx.lineJoin = "round";
      ctx.lineWidth = 5 * ratio;
      ctx.strokeStyle = colour("ground");
      ctx.strokeText(mark.label, x, y);
      ctx.restore();
      ctx.fillText(mark.label, x, y);
    }
    ctx.restore();
  };

  // Few distributions may be filled; of more only the outlines can be told apart.
  const FILLED_MAX = 3;
  const filled = (view, index) => {
    if (view.series.length > FILLED_MAX) return undefined;
    return () => `${colour(styleOf(index).colour)}1f`;
  };

  // Bars that stand on the axis; a bar ends where the next one or nothing begins.
  const bars = (u, series, from, to) => {
    const stroke = new Path2D();
    const xs = u.data[0];
    const ys = u.data[series];
    const bottom = u.bbox.top + u.bbox.height;
    let height = null;
    for (let i = from; i <= to; i += 1) {
      if (ys[i] === undefined) continue;
      const x = u.valToPos(xs[i], "x", true);
      if (height !== null) stroke.lineTo(x, height);
      else if (ys[i] !== null) stroke.moveTo(x, bottom);
      else continue;
      height = ys[i] === null ? null : u.valToPos(ys[i], "y", true);
      stroke.lineTo(x, height ?? bottom);
    }
    return { stroke, fill: new Path2D(stroke), clip: null, band: null, gaps: null, flags: 1 };
  };

  // Points without a neighbour that a line would join them with.
  const alone = (ys) => {
    const places = [...ys.keys()].filter((at) => ys[at] !== undefined);
    const isNone = (place) => place === undefined || ys[place] === null;
    return places.filter((at, n) => ys[at] !== null && isNone(places[n - 1]) && isNone(places[n + 1]));
  };

  const options = (plot, view, width) => ({
    width,
    height: HEIGHT,
    padding: [10, 30, 0, 0],
    scales: { x: scaleOf(plot.x, true), y: scaleOf(plot.y, false) },
    axes: [axisOf(plot.x, true), axisOf(plot.y, false)],
    cursor: { dataIdx: nearest, points: { size: 8 }, y: false },
    legend: { markers: { width: 0, fill: "none" } },
    hooks: {
      draw: [drawMarks(plot.marks)],
      setSeries: [(u, index) => {
        const label = u.root.querySelectorAll(".u-series th")[index];
        label?.setAttribute("aria-pressed", String(u.series[index].show));
      }],
    },
    series: [
      {
        label: plot.x.short,
        value: (u, value) => (value == null ? NONE : unitOf(plot.x)(value)),
      },
      ...view.series.map((series, index) => ({
        label: series.label,
        stroke: () => colour(styleOf(index).colour),
        width: styleOf(index).width,
        dash: styleOf(index).dash,
        ...(plot.bars ? { paths: bars, fill: filled(view, index) } : {}),
        points: {
          show: plot.points,
          // A single point makes no line.
          filter: (u, at, isShown) => (isShown || plot.bars ? null : alone(u.data[at])),
          size: 6,
          fill: colour("ground"),
        },
        value: (u, value) => (value == null ? NONE : UNITS[plot.y.unit](value)),
      })),
    ],
  });

  // Where lines are interrupted stands nothing, and nothing of other lines' places is a gap.
  const columns = (view) => {
    const tables = view.series.map(({ points, gaps = [] }) => {
      const all = [...points, ...gaps.map((x) => [x, null])].sort((a, b) => a[0] - b[0]);
      return [all.map((p) => p[0]), all.map((p) => p[1])];
    });
    const WIDENED = 2;
    return uPlot.join(tables, tables.map(() => [0, WIDENED]));
  };

  // A piece of the line as it is drawn, so that colour is not all that tells series apart.
  const swatch = (index) => {
    const svg = document.createElementNS(SVG, "svg");
    const line = document.createElementNS(SVG, "line");
    const style = styleOf(index);
    const attributes = {
      x1: 0, x2: 44, y1: 3, y2: 3, "stroke-width": style.width + 1, stroke: colour(style.colour),
    };
    for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, value);
    line.setAttribute("stroke-dasharray", style.dash.join(" "));
    svg.setAttribute("class", "swatch");
    svg.setAttribute("aria-hidden", "true");
    svg.append(line);
    return svg;
  };

  // What uPlot leaves out: line styles in the legend, the keyboard, names for screen readers.
  const finish = (chart, drawn) => {
    chart.querySelectorAll(".u-series:not(:first-child) th").forEach((label, index) => {
      label.querySelector(".u-marker").replaceWith(swatch(index));
      label.tabIndex = 0;
      label.setAttribute("role", "button");
      label.setAttribute("aria-pressed", String(drawn.series[index + 1].show));
      label.title = "Show or hide";
      label.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          label.click();
        }
      });
    });
    const drawing = chart.querySelector(".u-wrap");
    drawing.setAttribute("role", "img");
    for (const name of ["aria-label", "aria-describedby", "aria-details"]) {
      drawing.setAttribute(name, chart.getAttribute(name));
    }
  };

  // The arrow keys go from place to place; what the legend says there is read aloud.
  const steppable = (chart, drawnNow) => {
    const said = Object.assign(document.createElement("p"), { className: "aloud" });
    said.setAttribute("aria-live", "polite");
    chart.after(said);
    chart.tabIndex = 0;
    chart.addEventListener("keydown", (event) => {
      const u = drawnNow();
      const way = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.target !== chart || way === undefined) return;
      event.preventDefault();
      const { min, max } = u.scales.x;
      const xs = u.data[0];
      const isDrawn = (at) => u.series.some(({ show }, n) => n > 0 && show && u.data[n][at] != null);
      const places = [...xs.keys()].filter((at) => xs[at] >= min && xs[at] <= max && isDrawn(at));
      if (places.length === 0) return;
      // From nowhere, each way leads to an end.
      const now = places.indexOf(u.cursor.idx);
      const next = Math.min(places.length - 1, Math.max(0, now + way));
      u.setCursor({ left: u.valToPos(xs[places[next]], "x"), top: u.over.clientHeight / 2 });
      const rows = [...chart.querySelectorAll(".u-series:not(.u-off)")];
      const told = (row) => [...row.children].map((cell) => cell.textContent.trim()).join(" ");
      said.textContent = rows.map(told).join(", ");
    });
  };

  const chooser = (plot, redraw) => {
    const set = document.createElement("fieldset");
    set.className = "views";
    set.append(Object.assign(document.createElement("legend"), { textContent: plot.chooser }));
    plot.views.forEach((view, index) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: plot.id, checked: index === plot.view });
      input.addEventListener("change", () => {
        plot.view = index;
        redraw();
      });
      label.append(input, view.label);
      set.append(label);
    });
    return set;
  };

  const mount = (plot) => {
    const chart = document.getElementById(`plot-${plot.id}`);
    let drawn = null;
    const redraw = () => {
      drawn?.destroy();
      const view = plot.views[plot.view];
      drawn = new uPlot(options(plot, view, chart.clientWidth), columns(view), chart);
      finish(chart, drawn);
    };
    if (plot.views.length > 1) {
      chart.closest("figure").querySelector("h3").after(chooser(plot, redraw));
    }
    steppable(chart, () => drawn);
    new ResizeObserver(() => {
      const width = chart.clientWidth;
      if (drawn && width > 0 && width !== drawn.width) drawn.setSize({ width, height: HEIGHT });
    }).observe(chart);
    redraw();
    return redraw;
  };

  const redraws = JSON.parse(text("plots")).map(mount);
  const redrawAll = () => redraws.forEach((redraw) => redraw());
  dark.addEventListener("change", redrawAll);
  // Paper is light and cannot be unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((details) => { details.open = true; });
    root.classList.add("printing");
    redrawAll();
  });
  addEventListener("afterprint", () => {
    folded.forEach((details) => { details.open = false; });
    root.classList.remove("printing");
    redrawAll();
  });

  const save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", () => {
    // As it stands: parsing would round counters above 2^53.
    const url = URL.createObjectURL(new Blob([text("result"), "\n"], { type: "application/json" }));
    Object.assign(document.createElement("a"), { href: url, download: "result.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
})();
