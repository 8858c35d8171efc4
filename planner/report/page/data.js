// The page's data: spans of all stages as typed arrays, and how quantities are written.
const root = document.documentElement;
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const KINDS = data.kinds.map(([id, name]) => ({ id, name }));
const MEMORY = data.memoryKinds.map(([id, name]) => ({ id, name }));
const still = matchMedia("(prefers-reduced-motion: reduce)");

// One lane: spans in order of begin, without overlap. `kind`, `text` and `microbatch` run in parallel.
function makeLanes(stage) {
  const flat = stage.spans, counts = stage.lanes.map(() => 0), width = 6;
  for (let i = 0; i < flat.length; i += width) ++counts[flat[i]];
  const lanes = stage.lanes.map((name, i) => ({
    name, size: 0, begin: new Float64Array(counts[i]), end: new Float64Array(counts[i]),
    kind: new Uint8Array(counts[i]), text: new Int32Array(counts[i]), microbatch: new Int32Array(counts[i]),
  }));
  let begin = 0;
  for (let i = 0; i < flat.length; i += width) {
    const lane = lanes[flat[i]], n = lane.size++;
    begin += flat[i + 4];
    lane.kind[n] = flat[i + 1];
    lane.text[n] = flat[i + 2];
    lane.microbatch[n] = flat[i + 3];
    lane.begin[n] = begin;
    lane.end[n] = begin + flat[i + 5];
  }
  return lanes;
}

// Shares of each interval between the detailed ranges: [[kind, share of the interval], ...] by column.
function makeShares(text) {
  if (!text) return null;
  return text.split(";").map((column) => {
    const pairs = [];
    for (let i = 0; i < column.length; i += 3) {
      pairs.push([parseInt(column[i], 36), parseInt(column.slice(i + 1, i + 3), 36) / 1000]);
    }
    return pairs;
  });
}

// For views in which actions are too narrow: runs of the compute lane that belong to one pass of one microbatch, with the
// time of each kind in them. Recomputation and waits for collectives count to the run they stand in; a wait for a stage,
// the optimizer and what belongs to no microbatch are runs of their own.
function makePasses(lane) {
  const passes = [];
  let open = null;
  for (let i = 0; i < lane.size; ++i) {
    const id = KINDS[lane.kind[i]].id, long = lane.end[i] - lane.begin[i];
    const main = id === "forward" || id === "backward" || id === "weight";
    const alone = id === "stall" || id === "optimizer" || (id === "wait" && lane.microbatch[i] < 0);
    if (alone && !long) continue;
    const family = alone ? id : id === "weight" && open && open.microbatch === lane.microbatch[i] ? open.family : id;
    const other = open && (lane.begin[i] > open.end || alone || open.alone ||
      (main && open.family !== null && (open.family !== family || open.microbatch !== lane.microbatch[i])));
    if (!open || other) {
      open = { begin: lane.begin[i], end: lane.end[i], count: 0, family: null, microbatch: -1, first: i, alone, time: new Float64Array(KINDS.length) };
      passes.push(open);
    }
    if (open.family === null && (main || alone)) {
      open.family = family;
      open.microbatch = lane.microbatch[i];
      open.label = actionText(lane, i).replace(/^\d+/, "").split(":")[0];
    }
    open.end = Math.max(open.end, lane.end[i]);
    open.count += long > 0;
    open.time[lane.kind[i]] += long;
  }
  return passes;
}

// Times come as differences.
function makeMemory(memory) {
  let t = 0;
  return Object.assign({}, memory, { times: memory.times.map((by) => (t += by)) });
}

const stages = data.stages.map((s) =>
  Object.assign({}, s, { lanes: makeLanes(s), shares: makeShares(s.shares), memory: makeMemory(s.memory) }));
for (const stage of stages) {
  stage.passes = makePasses(stage.lanes[0]);
  for (const lane of stage.lanes) lane.stage = stage;
}
data.stages = null;
const gap = data.detail.length > 1 ? { begin: data.detail[0][1], end: data.detail[1][0] } : null;

// Index of the first span of a lane that ends after `t`.
function firstAfter(lane, t) {
  let low = 0, high = lane.size;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.end[middle] > t) high = middle; else low = middle + 1;
  }
  return low;
}

function actionText(lane, i) { return data.texts[lane.text[i]][0].replace("#", lane.microbatch[i]); }
function actionMeaning(lane, i) { return data.texts[lane.text[i]][1].replace("#", lane.microbatch[i]); }

function duration(ticks) {
  const ns = ticks * data.tick;
  const units = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];
  let [unit, size] = units[0];
  for (const [u, s] of units) if (ns >= s) { unit = u; size = s; }
  const value = ns / size;
  return (unit === "ns" ? Math.round(value) : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : value < 1000 ? 1 : 0)) + " " + unit;
}

// Moments in one unit for the whole axis, with as many decimals as `step` needs.
function moment(ticks, step) {
  const whole = data.step * data.tick;
  const [unit, size] = whole >= 2e9 ? ["s", 1e9] : whole >= 2e6 ? ["ms", 1e6] : ["µs", 1e3];
  const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step * data.tick / size) - 1e-9)));
  return (ticks * data.tick / size).toFixed(decimals) + " " + unit;
}

function bytes(value) {
  const sign = value < 0 ? "−" : "";
  value = Math.abs(value);
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return sign + (value / size).toFixed(1) + " " + unit;
  }
  return sign + value + " B";
}

function escaped(text) {
  return String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

// Colours of the current theme, as the browser resolves them; patterns for waiting are made with them.
const theme = { colors: {} };
function color(name) {
  if (!theme.colors[name]) {
    theme.probe = theme.probe || document.body.appendChild(document.createElement("i"));
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

function hatch(context, name) {
  const key = "hatch-" + name;
  if (!theme.colors[key]) {
    const tile = document.createElement("canvas"), size = 12;
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
