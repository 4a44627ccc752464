// Draws the plots that the page describes as data in #plots and lets #result be saved. What is
// plotted is decided where the page is made; this knows scales, units and colours only.
"use strict";
(() => {
  const HEIGHT = 340;
  // As many as there are colours, so that no two of a plot's first eight are alike without them.
  const DASHES = [
    [], [8, 4], [2, 3], [10, 3, 2, 3], [18, 4], [5, 2], [10, 3, 2, 3, 2, 3], [2, 7],
  ];
  const SVG = "http://www.w3.org/2000/svg";
  const NEAR_PX = 40;
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
    seconds: (value) => `${Number(value.toPrecision(6))} s`,
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
  const evenTicks = (min, max, least) => {
    const rough = (max - min) / 5 || 1;
    const base = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max([1, 2, 5, 10].map((m) => m * base).find((s) => s >= rough), least);
    const ticks = [];
    for (let i = Math.ceil(min / step); i * step <= max; i += 1) ticks.push(i * step);
    return ticks;
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

  // There is no half of what is counted.
  const ticksOf = (axis) => (min, max) => evenTicks(min, max, axis.unit === "count" ? 1 : 0);

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
    values: (u, splits) => splits.map(UNITS[axis.unit]),
  });

  // The point of a series nearest to the pointer, as series need not share their x values.
  const nearest = (u, series, hovered, x) => {
    if (hovered == null || series === 0) return hovered;
    const ys = u.data[series];
    const xs = u.data[0];
    const left = u.valToPos(x, "x");
    let best = null;
    let distance = NEAR_PX;
    for (let i = 0; i < xs.length; i += 1) {
      const away = Math.abs(u.valToPos(xs[i], "x") - left);
      if (ys[i] != null && away < distance) [best, distance] = [i, away];
    }
    return best ?? hovered;
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

  const options = (plot, view, width) => ({
    width,
    height: HEIGHT,
    padding: [10, 30, 0, 0],
    scales: { x: scaleOf(plot.x, true), y: scaleOf(plot.y, false) },
    axes: [axisOf(plot.x, true), axisOf(plot.y, false)],
    cursor: { dataIdx: nearest, points: { size: 8 }, y: false },
    legend: { markers: { width: 0, fill: "none" } },
    hooks: { draw: [drawMarks(plot.marks)] },
    series: [
      {
        label: plot.x.short,
        value: (u, value) => (value == null ? NONE : UNITS[plot.x.unit](value)),
      },
      ...view.series.map((series, index) => ({
        label: series.label,
        stroke: () => colour(`series-${index % 8}`),
        width: 2,
        dash: DASHES[index % DASHES.length],
        spanGaps: true,
        // A single point makes no line.
        points: { show: plot.points || series.points.length === 1, size: 6, fill: colour("ground") },
        value: (u, value) => (value == null ? NONE : UNITS[plot.y.unit](value)),
      })),
    ],
  });

  const columns = (view) => {
    const tables = view.series.map(({ points }) => [points.map((p) => p[0]), points.map((p) => p[1])]);
    return uPlot.join(tables);
  };

  // A piece of the line as it is drawn, so that colour is not all that tells series apart.
  const swatch = (index) => {
    const svg = document.createElementNS(SVG, "svg");
    const line = document.createElementNS(SVG, "line");
    const attributes = { x1: 0, x2: 28, y1: 2, y2: 2, "stroke-width": 3, stroke: colour(`series-${index % 8}`) };
    for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, value);
    line.setAttribute("stroke-dasharray", DASHES[index % DASHES.length].join(" "));
    svg.setAttribute("class", "swatch");
    svg.setAttribute("aria-hidden", "true");
    svg.append(line);
    return svg;
  };

  // What uPlot leaves out: line styles in the legend, the keyboard, names for screen readers.
  const finish = (chart) => {
    chart.querySelectorAll(".u-series:not(:first-child) th").forEach((label, index) => {
      label.querySelector(".u-marker").replaceWith(swatch(index));
      label.tabIndex = 0;
      label.setAttribute("role", "button");
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
    drawing.setAttribute("aria-label", chart.getAttribute("aria-label"));
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
      finish(chart);
    };
    if (plot.views.length > 1) {
      chart.closest("figure").querySelector("h3").after(chooser(plot, redraw));
    }
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
