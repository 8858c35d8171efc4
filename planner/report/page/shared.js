"use strict";
// What every page of this project uses: elements, numbers as people read them, round numbers on an axis, and colours of the
// theme. It must be loaded before the other scripts.
const byId = (id) => document.getElementById(id);

// ---- Elements ----
// An element with attributes and children. Attributes and children that are null, undefined or false are left out. Texts are
// put in as text.
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
// The same for SVG.
function makeSvg(tag, attributes = {}, ...children) {
  const { namespaceURI } = fragmentOf("<svg></svg>").firstChild;
  return filled(document.createElementNS(namespaceURI, tag), attributes, children);
}
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
function setText(element, text) { if (element.textContent !== text) element.textContent = text; }
// `heads`: [text, class] of each column. `rows`: elements.
function tableOf(heads, rows, attributes = {}) {
  const titles = heads.map(([text, name]) => make("th", { scope: "col", class: name }, text));
  return make("table", attributes, make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...rows));
}
const swatch = (kind) => make("i", { class: "swatch k-" + kind });

// Parts of a page come as HTML that a program of this project has made and escaped.
function fragmentOf(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}
// Puts new content (nodes or text) in the place of old, and leaves to people what they had: what was open, scrolled to, and
// focused.
function replaceKeeping(host, ...content) {
  const reach = "a, button, summary, [tabindex]", scrolls = ".plots, .scroll";
  const focused = [...host.querySelectorAll(reach)].indexOf(document.activeElement);
  const open = [...host.querySelectorAll("details")].map((details) => details.open);
  const scrolled = [...host.querySelectorAll(scrolls)].map((element) => element.scrollLeft);
  host.replaceChildren(...content);
  host.querySelectorAll("details").forEach((details, i) => { details.open = open[i] ?? false; });
  host.querySelectorAll(scrolls).forEach((element, i) => { element.scrollLeft = scrolled[i] ?? 0; });
  if (focused >= 0) host.querySelectorAll(reach)[focused]?.focus({ preventScroll: true });
}
// Shows `content` beside the point (x, y) of the window; hides the tip if there is none.
function showTipAt(tip, content, x, y) {
  tip.hidden = !content;
  if (!content) return;
  tip.replaceChildren(...content);
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
}

// ---- Numbers as people read them ----
function count(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return Number((value / size).toPrecision(3)) + unit;
  }
  return String(Number(value.toPrecision(3)));
}
// As FormatDuration (common/units.h), but with "µs" for "us". Nanoseconds are rounded to whole ones first.
function duration(ns) {
  ns = Math.round(ns);
  if (ns < 0) return "-" + duration(-ns);
  if (ns < 60e9) {
    const units = [["s", 1e9, 2], ["ms", 1e6, 1], ["µs", 1e3, 1]];
    const [unit, size, decimals] = units.find((u) => ns >= u[1]) ?? ["ns", 1, 0];
    return fixed(ns / size, decimals) + " " + unit;
  }
  const seconds = Math.floor(ns / 1e9), hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60);
  const two = (number) => String(number).padStart(2, "0");
  return hours > 0 ? hours + "h" + two(minutes % 60) + "m" : minutes + "m" + two(seconds % 60) + "s";
}
// As printf writes it: a value in the middle between two texts gets the one whose last digit is even, whereas toFixed takes the
// larger one. A number in binary is such a value only if it is an odd multiple of this part.
function fixed(value, decimals) {
  const parts = value * 2 ** (decimals + 1), power = 10 ** decimals, floor = Math.floor(value * power);
  const middle = Number.isInteger(parts) && parts % 2 === 1 && floor % 2 === 0;
  return middle ? (floor / power).toFixed(decimals) : value.toFixed(decimals);
}
// A time at an axis: in seconds if `whole` is two seconds or more, and so on, with as many decimals as `step`, the time
// between two labels, needs. All in nanoseconds. Labels of one axis differ, whereas `duration` writes all times within one
// second as "1m03s".
function moment(ns, step, whole) {
  const [unit, size] = whole >= 2e9 ? ["s", 1e9] : whole >= 2e6 ? ["ms", 1e6] : ["µs", 1e3];
  const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return (ns / size).toFixed(decimals) + " " + unit;
}
function bytes(value) {
  const sign = value < 0 ? "−" : "", size = Math.abs(value);
  const unit = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find((u) => size >= u[1]);
  return sign + (unit ? (size / unit[1]).toFixed(1) + " " + unit[0] : size + " B");
}
// Without zeros after the point: "1.50 s" becomes "1.5 s".
const shortened = (text) => text.replace(/(\.\d*?)0+(?= )/, (_, some) => some === "." ? "" : some);
const grouped = (n) => n.toLocaleString("en");
const percent = (share) => share === null ? "–" : (100 * share).toFixed(1) + "%";
const plural = (n, word) => n + " " + word + (n === 1 ? "" : "s");
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

// ---- Axes ----
// Round numbers within [low, high], about `count` of them, and the step between them, which is at least `least`. Steps are 1, 2
// or 5 times a power of ten; those of bytes are 1, 2 or 5 times a power of ten, times a power of 1024.
function ticksBetween(low, high, count, { least = 0, ofBytes = false } = {}) {
  const rough = Math.max((high - low) / count, least, Number.MIN_VALUE);
  const power = ofBytes ? 1024 ** Math.max(0, Math.floor(Math.log2(rough) / 10)) : 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10, 20, 50, 100, 200, 500].find((k) => k * power >= rough * 0.999) ?? 1024) * power;
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) values.push(i * step);
  return { step, values };
}

// ---- Colours ----
// Colours of the present theme, as the browser resolves them. Those who draw with them follow its changes.
const theme = { colors: {}, followers: new Set() };
const still = matchMedia("(prefers-reduced-motion: reduce)");
function themeChanged() {
  theme.colors = {};
  for (const follow of theme.followers) follow();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
// Makes the button change the colours: as the system, light, dark.
function startTheme(button) {
  const words = ["Auto", "Light", "Dark"];
  let at = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    const { dataset } = document.documentElement;
    button.textContent = words[at = (at + 1) % words.length];
    const name = button.textContent.toLowerCase();
    if (name === "auto") delete dataset.theme; else dataset.theme = name;
    button.setAttribute("aria-label", "Colours: " + (name === "auto" ? "as the system" : name));
    themeChanged();
  });
}
function color(name) {
  if (!theme.colors[name]) {
    theme.probe = theme.probe || document.body.appendChild(make("i", { hidden: true }));
    theme.probe.style.color = "var(--" + name + ")";
    theme.colors[name] = getComputedStyle(theme.probe).color;
  }
  return theme.colors[name];
}
// Black or white, whichever is read better on the colour.
function inkOn(rgb) {
  const [r, g, b] = rgb.match(/[\d.]+/g).map((v) => (v / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19 ? "#0a0f16" : "#ffffff";
}
// A pattern of slanted lines, for waiting.
function hatch(context, name) {
  const key = "hatch-" + name;
  if (!theme.colors[key]) {
    const tile = make("canvas"), size = 12;
    tile.width = tile.height = size;
    const t = tile.getContext("2d");
    t.strokeStyle = color(name);
    t.lineWidth = 2.2;
    t.lineCap = "square";
    for (const x of [-size, -size / 2, 0, size / 2, size]) {
      t.beginPath(); t.moveTo(x, size); t.lineTo(x + size, 0); t.stroke();
    }
    theme.colors[key] = context.createPattern(tile, "repeat");
  }
  return theme.colors[key];
}
// Sizes a canvas for sharp lines; returns its context in CSS pixels.
function prepared(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 3);
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  context.textBaseline = "middle";
  return context;
}
