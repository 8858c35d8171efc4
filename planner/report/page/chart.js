"use strict";
// A chart of what memory buys: step times of plans over the memory that they need. It needs shared.js.
//
//     drawFrontier(element, {
//       points: [{ name, stepNs, peakBytes, fits, chosen, note }],   // plans, such as one of each policy
//       frontier: [{ stepNs, peakBytes, note }],                     // the best plans with less and less memory
//       limitBytes,                                                  // 0: there is no limit
//     });
//
// It may be called again for the same element with other values: who has opened the table or focused a mark keeps that. `note`
// may be empty. Marks without a finite step or memory stand in the table only.
const CHART = { height: 320, left: 70, right: 20, top: 22, bottom: 46 };
const charts = new WeakMap();

function drawFrontier(element, content) {
  if (!charts.has(element)) charts.set(element, new FrontierChart(element));
  charts.get(element).show(content);
}

class FrontierChart {
  constructor(host) {
    this.plot = make("div", { class: "chart" });
    this.tip = make("div", { class: "tip", role: "tooltip", hidden: true });
    this.told = make("output", { class: "inspector", "aria-live": "polite" });
    this.rows = make("div", { class: "scroll" });
    const legend = [["point chosen", "chosen"], ["point", "fits"], ["point over", "does not fit"], ["dot", "frontier"]].map(
      ([kind, text]) => make("span", {}, makeSvg("svg", { class: "chart-key", viewBox: "-8 -8 16 16", "aria-hidden": "true" },
        markOf(kind)), text));
    host.replaceChildren(make("div", { class: "legend" }, ...legend), this.plot, this.told,
      make("details", {}, make("summary", {}, "As a table"), this.rows), this.tip);
    this.marks = [];
    this.current = 0;  // the mark that the keys have reached
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("focusin", (event) => this.point(this.indexOf(event)));
    this.plot.addEventListener("focusout", () => this.point(-1));
    this.plot.addEventListener("pointerover", (event) => this.point(this.indexOf(event)));
    this.plot.addEventListener("pointerleave", () => this.point(-1));
    new ResizeObserver(() => { if (this.plot.clientWidth !== this.width) this.draw(); }).observe(this.plot);
  }

  show({ points, frontier, limitBytes }) {
    this.limit = limitBytes || 0;
    const kindOf = (point) => "point" + (point.fits ? "" : " over") + (point.chosen ? " chosen" : "");
    const named = points.map((point) => ({ ...point, kind: kindOf(point) }));
    const all = [...frontier.map((best) => ({ ...best, name: "frontier", fits: true, kind: "dot" })), ...named];
    this.marks = all.filter((mark) => Number.isFinite(mark.stepNs) && Number.isFinite(mark.peakBytes));
    this.marks.sort((a, b) => a.peakBytes - b.peakBytes || a.stepNs - b.stepNs);
    this.current = Math.max(0, Math.min(this.current, this.marks.length - 1));
    const heads = [["plan"], ["step", "r"], ["memory", "r"], ["fits"], ["note"]];
    const row = (mark) => make("tr", {}, make("th", { scope: "row" }, mark.name), make("td", { class: "r" }, timeOf(mark)),
      make("td", { class: "r" }, memoryOf(mark)), make("td", {}, mark.fits ? "yes" : "no"), make("td", {}, mark.note || ""));
    replaceKeeping(this.rows, tableOf(heads, [...named, ...all.filter((mark) => mark.kind === "dot")].map(row)));
    this.draw();
  }

  draw() {
    this.width = this.plot.clientWidth;
    if (this.width === 0) return;
    const { marks, width, limit } = this, { height, left, right, top, bottom } = CHART;
    const most = Math.max(limit, ...marks.map((mark) => mark.peakBytes)) * 1.06 || 1;
    const steps = marks.map((mark) => mark.stepNs), slowest = Math.max(...steps), fastest = Math.min(...steps);
    const margin = Math.max((slowest - fastest) * 0.12, slowest * 0.02) || 1;
    const low = Math.max(0, fastest - margin), high = slowest + margin;
    const x = (bytes) => left + bytes / most * (width - left - right);
    const y = (ns) => height - bottom - (ns - low) / (high - low) * (height - bottom - top);
    const drawn = marks.length === 0 ? [] : [this.grid(x, y, most, low, high), this.line(x, y)];
    drawn.push(...this.labels(x, y), ...marks.map((mark, i) => {
      const place = `translate(${x(mark.peakBytes)} ${y(mark.stepNs)})`, tabindex = i === this.current ? "0" : "-1";
      return makeSvg("g", { class: "mark", transform: place, role: "img", "aria-label": sentenceOf(mark), tabindex },
        makeSvg("circle", { class: "reach", r: 12 }), markOf(mark.kind));
    }));
    const told = `Step time over memory, ${plural(marks.length, "mark")}` + (limit ? `; the limit is ${bytes(limit)}` : "");
    replaceKeeping(this.plot, makeSvg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "group",
      "aria-label": told + ". Arrow keys move between the marks." }, ...drawn));
  }

  grid(x, y, most, low, high) {
    const { height, left, right, top, bottom } = CHART, end = this.width - right, floor = height - bottom;
    const text = (name, at, words) => makeSvg("text", { class: name, x: at[0], y: at[1] }, words);
    const line = (name, from, to) => makeSvg("line", { class: name, x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
    const across = ticksBetween(0, most, this.width / 110, { ofBytes: true }).values.flatMap((v) => [
      line("grid", [x(v), top], [x(v), floor]), text("middle", [x(v), floor + 17], shortened(bytes(v)))]);
    const { step, values } = ticksBetween(low, high, 5);
    const named = (v) => moment(v, step, 2 * high);  // in seconds from one second on
    const up = values.flatMap((v) => [
      line("grid", [left, y(v)], [end, y(v)]), text("end", [left - 8, y(v) + 4], named(v))]);
    const limit = this.limit ? [line("limit", [x(this.limit), top], [x(this.limit), floor]),
      text("end strong", [x(this.limit) - 6, top + 10], "limit " + bytes(this.limit))] : [];
    return makeSvg("g", { "aria-hidden": "true" }, ...across, ...up, ...limit, text("end", [left - 8, top - 8], "step"),
      text("end", [end, height - 6], "memory of a device at its peak"));
  }

  line(x, y) {
    const points = this.marks.filter((mark) => mark.kind === "dot").map((mark) => `${x(mark.peakBytes)},${y(mark.stepNs)}`);
    return makeSvg("polyline", { class: "line", points: points.join(" ") });
  }

  // The names of the plans beside their marks, where there is room.
  labels(x, y) {
    const taken = this.marks.map((mark) => [x(mark.peakBytes) - 6, y(mark.stepNs) - 6, 12, 12]), placed = [];
    if (this.limit) taken.push([x(this.limit) - 2, CHART.top, 4, CHART.height], [x(this.limit) - 110, CHART.top, 110, 14]);
    for (const mark of this.marks.filter((mark) => mark.kind !== "dot")) {
      const wide = mark.name.length * 6.6, at = [x(mark.peakBytes), y(mark.stepNs)];
      const places = [["", 13, 4], ["end", -13, 4], ["middle", 0, -13], ["middle", 0, 21]];
      for (const [anchor, dx, dy] of places) {
        const from = at[0] + dx - { "": 0, end: wide, middle: wide / 2 }[anchor], box = [from, at[1] + dy - 11, wide, 14];
        if (from < CHART.left || from + wide > this.width || taken.some((other) => overlap(box, other))) continue;
        taken.push(box);
        const place = { class: anchor + " amount", x: at[0] + dx, y: at[1] + dy, "aria-hidden": "true" };
        placed.push(makeSvg("text", place, mark.name));
        break;
      }
    }
    return placed;
  }

  elements() { return [...this.plot.querySelectorAll(".mark")]; }
  indexOf(event) { return this.elements().indexOf(event.target.closest(".mark")); }

  // Tells of a mark; of none if `i` is -1.
  point(i) {
    const mark = this.marks[i];
    setText(this.told, mark ? sentenceOf(mark) : "");
    if (!mark) return showTipAt(this.tip, null);
    const { right, top } = this.elements()[i].getBoundingClientRect();
    showTipAt(this.tip, [make("code", {}, mark.name), make("div", {}, `${timeOf(mark)} a step, ${memoryOf(mark)}`),
      make("div", { class: "when" }, fitsOf(mark) + (mark.note ? "; " + mark.note : ""))], right - 8, top);
  }

  onKey(event) {
    const after = this.current + 1, before = this.current - 1, last = this.marks.length - 1;
    const to = { ArrowRight: after, ArrowUp: after, ArrowLeft: before, ArrowDown: before, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.point(-1);
    if (to === undefined || this.marks.length === 0) return;
    event.preventDefault();
    this.current = Math.max(0, Math.min(to, last));
    this.elements().forEach((element, i) => element.setAttribute("tabindex", i === this.current ? "0" : "-1"));
    this.elements()[this.current].focus();
  }
}

// The mark of a kind, around (0, 0): a disc; a square for what is chosen; a cross for what does not fit; a small disc of the
// frontier.
function markOf(kind) {
  if (kind === "dot") return makeSvg("circle", { class: kind, r: 3.5 });
  if (kind.includes("over")) return makeSvg("path", { class: kind, d: "M-4.5-4.5L4.5 4.5M-4.5 4.5L4.5-4.5" });
  if (kind.includes("chosen")) return makeSvg("rect", { class: kind, x: -6, y: -6, width: 12, height: 12 });
  return makeSvg("circle", { class: kind, r: 5 });
}
function overlap([x, y, w, h], [u, v, s, t]) { return x < u + s && u < x + w && y < v + t && v < y + h; }
function timeOf(mark) { return Number.isFinite(mark.stepNs) ? duration(mark.stepNs) : "–"; }
function memoryOf(mark) { return Number.isFinite(mark.peakBytes) ? bytes(mark.peakBytes) : "–"; }
function fitsOf(mark) { return (mark.fits ? "fits" : "does not fit") + (mark.chosen ? ", chosen" : ""); }
function sentenceOf(mark) {
  return `${mark.name}: ${timeOf(mark)} a step with ${memoryOf(mark)}, ${fitsOf(mark)}${mark.note ? "; " + mark.note : ""}`;
}
