// What there is to see on a page, as data: plots with what was really painted, tables, texts,
// colours. It is evaluated in the page; what has to hold of it is for the scenario.
(() => {
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  const words = (element) => element.textContent.trim().replace(/\s+/g, " ");
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const lines = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => colour(`series-${n}`));
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const luminance = (hex) => {
    const [r, g, b] = channels(hex).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  // WCAG 2.2, relative luminance and contrast ratio.
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  // How many points of a canvas have nearly each of these colours; most points are transparent.
  const painted = (data, colours) => {
    const counts = colours.map(() => 0);
    for (let at = 0; at < data.length; at += 4) {
      if (data[at + 3] <= 200) continue;
      for (let n = 0; n < colours.length; n += 1) {
        const [r, g, b] = colours[n];
        const near = Math.abs(r - data[at]) < 24 && Math.abs(g - data[at + 1]) < 24
          && Math.abs(b - data[at + 2]) < 24;
        counts[n] += near ? 1 : 0;
      }
    }
    return counts;
  };
  const pixels = (canvas) => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    return context.getImageData(0, 0, canvas.width, canvas.height).data;
  };
  const chart = (element) => {
    const canvas = element.querySelector("canvas");
    const drawn = element.querySelector("[role=img]");
    return {
      id: element.id.replace("plot-", ""),
      name: drawn.getAttribute("aria-label"),
      described: ["aria-describedby", "aria-details"].every((name) =>
        words(document.getElementById(drawn.getAttribute(name))) !== ""),
      size: [canvas.width, canvas.height],
      painted: painted(pixels(canvas), lines.map(channels)),
      legend: all(element, ".u-series").map((row) => words(row.querySelector("th"))),
      dashes: all(element, ".swatch line").map((line) => line.getAttribute("stroke-dasharray")),
    };
  };
  const table = (element) => ({
    id: element.id || null,
    rows: all(element, "tbody tr").map((row) => all(row, "th, td").map(words)),
  });
  const verdict = document.querySelector(".verdict");
  const above = document.querySelector(".findings, .plot, .data");
  const grounds = ["ground", "raised"];
  const texts = ["text", "muted", "accent", "note", "warning", "error"];
  return {
    // As text: a browser's numbers do not tell 1 from 1.0.
    result: document.getElementById("result").textContent,
    plots: json("plots"),
    charts: all(document, ".chart").map(chart),
    tables: all(document, ".scroll").map(table),
    title: document.title,
    failed: verdict && all(verdict, ".failed").map(words)[0],
    figure: verdict && words(verdict.querySelector(".figure")),
    onTop: verdict !== null && (above === null
      || (verdict.compareDocumentPosition(above) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0),
    findings: all(document, ".findings p").map(words),
    ids: all(document, "[id]").map((element) => element.id),
    ground: colour("ground"),
    textContrast: Math.min(...grounds.flatMap((ground) =>
      texts.map((text) => contrast(colour(text), colour(ground))))),
    lineContrast: Math.min(...lines.map((line) => contrast(line, colour("ground")))),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    // Paper does not scroll; what is wide has a turned sheet of its own.
    printed: Math.max(...all(document.body, ":not(.wide, .wide *)").map((element) =>
      Math.round(element.getBoundingClientRect().right) - document.documentElement.clientWidth)),
    wide: Math.max(0, ...all(document, ".wide").map((element) => element.offsetWidth)),
  };
})()
