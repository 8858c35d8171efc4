// The timeline: one row a stage with its windows, its compute lane and its transfers, drawn on a canvas; an overview of
// the whole step above it. `view` is the range of time shown; all that shows time follows it.
const view = { begin: 0, end: data.step };
const followers = [];
const lanesCanvas = $("lanes"), axisCanvas = $("axis"), overviewCanvas = $("overview"), tip = $("tip");
const HATCHED = { wait: true, copywait: true, stall: true };
const WINDOWS = { tensor: true, data: true, copy: true };
const selection = { stage: -1, lane: 0, index: 0 };
let hovered = null, layout = null, scheduled = false;

function measured() {
  const width = $("timeline").clientWidth, many = stages.length;
  const compute = Math.max(many <= 4 ? 30 : many <= 8 ? 24 : many <= 16 ? 17 : 11, data.strands > 1 && many <= 8 ? data.strands * 15 : 0);
  const transfer = many <= 8 ? 7 : many <= 16 ? 5 : 3;
  const gutter = width < 640 ? 54 : 118;
  const rows = [];
  let y = 6;
  for (const stage of stages) {
    const row = { top: y, rail: y, compute: y + 5, lanes: [{ y: y + 5, height: compute }] };
    let at = y + 5 + compute + 3;
    for (let lane = 1; lane < stage.lanes.length; ++lane) {
      row.lanes.push({ y: at, height: transfer });
      at += transfer + 2;
    }
    row.bottom = at + (many <= 16 ? 6 : 2);
    y = row.bottom;
    rows.push(row);
  }
  return { width, gutter, plot: width - gutter - 10, rows, height: y + 2 };
}

const toX = (t) => layout.gutter + (t - view.begin) / (view.end - view.begin) * layout.plot;
const toTime = (x) => view.begin + (x - layout.gutter) / layout.plot * (view.end - view.begin);

function fillOf(context, kind) {
  const id = KINDS[kind].id;
  return HATCHED[id] ? hatch(context, id) : color(id);
}

// Passes that run side by side (strands) have a part each of the compute lane, one above the other. Waiting, and what belongs
// to no microbatch, takes the whole height.
function placeOf(lane, i, y, height) {
  const id = KINDS[lane.kind[i]].id;
  if (data.strands === 1 || lane !== lane.stage.lanes[0] || HATCHED[id] || lane.microbatch[i] < 0) return { y, height };
  const strand = data.strandsAreMicrobatches ? lane.microbatch[i] % data.strands : id === "forward" ? 0 : 1;
  const each = height / data.strands;
  return { y: y + strand * each, height: each - 1 };
}

// A column of one pixel in which several spans lie: their shares, one above the other. Waiting is left out: at this
// scale hatching would only be noise.
function drawShares(context, x, width, y, height, shares) {
  let at = y + height;
  for (const [kind, share] of shares) {
    if (HATCHED[KINDS[kind].id]) continue;
    const part = Math.min(share * height, at - y);
    at -= part;
    context.fillStyle = color(KINDS[kind].id);
    context.fillRect(x, at, width, part);
  }
}

// The first of the texts that fits, in the middle of a block.
function drawLabel(context, texts, id, x, width, y, height) {
  if (width < 14 || height < 11) return;
  const text = texts.find((t) => context.measureText(t).width <= width - 5);
  if (!text) return;
  const w = context.measureText(text).width;
  if (HATCHED[id]) {
    context.fillStyle = color("panel");
    context.fillRect(x + width / 2 - w / 2 - 3, y + height / 2 - 7, w + 6, 14);
    context.fillStyle = color("ink2");
  } else {
    context.fillStyle = inkOn(color(id));
  }
  context.fillText(text, x + width / 2 - w / 2, y + height / 2 + 0.5);
}

function drawSpans(context, lane, y, height, begin, end) {
  const right = layout.gutter + layout.plot;
  let column = -1, shares = new Map();
  const flush = () => {
    if (column >= 0 && shares.size) drawShares(context, column, 1, y, height, [...shares.entries()].sort((a, b) => a[0] - b[0]));
    column = -1;
    shares = new Map();
  };
  const perPixel = (view.end - view.begin) / layout.plot;
  for (let i = firstAfter(lane, begin); i < lane.size && lane.begin[i] < end; ++i) {
    const x0 = Math.max(layout.gutter, toX(lane.begin[i])), x1 = Math.min(right, toX(lane.end[i]));
    const width = x1 - x0;
    if (width < 1.2) {
      if (width <= 0) continue;
      const at = Math.floor(x0);
      if (at !== column) { flush(); column = at; }
      shares.set(lane.kind[i], (shares.get(lane.kind[i]) || 0) + (lane.end[i] - lane.begin[i]) / perPixel);
      continue;
    }
    flush();
    const place = placeOf(lane, i, y, height);
    context.fillStyle = fillOf(context, lane.kind[i]);
    context.fillRect(x0, place.y, width > 4 ? width - 1 : width, place.height);
    if (HATCHED[KINDS[lane.kind[i]].id] && width > 4) {
      context.strokeStyle = color("line");
      context.lineWidth = 1;
      context.strokeRect(x0 + 0.5, place.y + 0.5, width - 2, place.height - 1);
    }
    const full = actionText(lane, i).replace(/^\d+/, "");
    drawLabel(context, [full, full.replace(/\(.*/, ""), full.split(":")[0]], KINDS[lane.kind[i]].id, x0, width, place.y, place.height);
  }
  flush();
}

// Whether a pass is drawn as one block.
function asBlock(pass) {
  const width = (pass.end - pass.begin) / (view.end - view.begin) * layout.plot;
  return width >= 3 && pass.count >= 2 && width / pass.count <= 4;
}

// The compute lane: passes whose actions would be too narrow are one block each, divided by where their time goes; the
// others are drawn action by action.
function drawCompute(context, stage, y, height) {
  const right = layout.gutter + layout.plot, lane = stage.lanes[0];
  let low = 0, high = stage.passes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stage.passes[middle].end > view.begin) high = middle; else low = middle + 1;
  }
  let plain = null;  // a run of passes that are drawn action by action
  const flush = () => {
    if (plain) drawSpans(context, lane, y, height, plain.begin, plain.end);
    plain = null;
  };
  for (; low < stage.passes.length && stage.passes[low].begin < view.end; ++low) {
    const pass = stage.passes[low];
    if (!asBlock(pass)) {
      if (!plain) plain = { begin: Math.max(pass.begin, view.begin), end: 0 };
      plain.end = Math.min(pass.end, view.end);
      continue;
    }
    flush();
    drawPass(context, pass, toX(pass.begin), toX(pass.end), right, y, height);
  }
  flush();
}

function drawPass(context, pass, x0, x1, right, y, height) {
  const width = x1 - x0, inner = width > 6 ? width - 1 : width, whole = pass.end - pass.begin;
  const from = Math.max(layout.gutter, x0), to = Math.min(right, x0 + inner);
  if (to <= from) return;
  context.save();
  context.beginPath();
  context.rect(from, y, to - from, height);
  context.clip();
  let at = x0, main = 0;
  pass.time.forEach((time, kind) => {
    if (!time) return;
    const part = time / whole * inner;
    context.fillStyle = fillOf(context, kind);
    context.fillRect(at, y, part + 0.3, height);
    if (KINDS[kind].id === pass.family) main = part;
    at += part;
  });
  context.restore();
  if (x0 < layout.gutter) return;
  if (main >= 14) drawLabel(context, [pass.label], pass.family, x0, Math.min(main, to - x0), y, height);
}

// The part of the step of which only shares are known.
function drawGap(context, stage, y, height) {
  if (!gap || !stage.shares || gap.end <= view.begin || gap.begin >= view.end) return;
  const columns = stage.shares.length, each = (gap.end - gap.begin) / columns;
  const first = Math.max(0, Math.floor((view.begin - gap.begin) / each));
  const last = Math.min(columns - 1, Math.floor((view.end - gap.begin) / each));
  for (let i = first; i <= last; ++i) {
    const x0 = Math.max(layout.gutter, toX(gap.begin + i * each));
    const x1 = Math.min(layout.gutter + layout.plot, toX(gap.begin + (i + 1) * each));
    drawShares(context, x0, x1 - x0 + 0.3, y, height, stage.shares[i]);
  }
}

function drawWindows(context, stage, row) {
  const right = layout.gutter + layout.plot;
  for (const lane of stage.lanes.slice(1)) {
    for (let i = firstAfter(lane, view.begin); i < lane.size && lane.begin[i] < view.end; ++i) {
      const id = KINDS[lane.kind[i]].id;
      if (!WINDOWS[id]) continue;
      const x0 = Math.max(layout.gutter, toX(lane.begin[i])), x1 = Math.min(right, toX(lane.end[i]));
      if (x1 - x0 < 0.8) continue;
      context.fillStyle = color("ink3");
      context.fillRect(x0, row.rail, x1 - x0, 2);
      if (x1 - x0 > 3) { context.fillRect(x0, row.rail, 1, 5); context.fillRect(x1 - 1, row.rail, 1, 5); }
    }
  }
}

function drawGutter(context, index, row) {
  const stage = stages[index], height = row.bottom - row.top;
  if (height < 10 && index % 2) return;
  const middle = row.compute + row.lanes[0].height / 2;
  context.textAlign = "left";
  const small = layout.gutter < 100, tall = height > 34 && !small, size = height < 20 ? 10 : 12;
  const name = small ? String(index) : stage.name;
  context.fillStyle = color("ink");
  context.font = "600 " + size + "px system-ui, sans-serif";
  context.fillText(name, 14, tall ? middle - 7 : middle);
  if (!small) {
    const beside = 14 + context.measureText(name).width + 7;
    context.font = Math.min(size, 11) + "px system-ui, sans-serif";
    context.fillStyle = color("ink3");
    context.fillText(stage.layers, tall ? 14 : beside, tall ? middle + 8 : middle, layout.gutter - 4 - (tall ? 14 : beside));
  }
  context.font = "11px system-ui, sans-serif";
}

function outlineOf(context, at, name) {
  const lane = stages[at.stage].lanes[at.lane], whole = layout.rows[at.stage].lanes[at.lane];
  const place = at.pass ? whole : placeOf(lane, at.index, whole.y, whole.height);
  const [begin, end] = at.pass ? [at.pass.begin, at.pass.end] : [lane.begin[at.index], lane.end[at.index]];
  const x0 = Math.max(layout.gutter, toX(begin)), x1 = Math.min(layout.gutter + layout.plot, toX(end));
  if (x1 < layout.gutter || x0 > layout.gutter + layout.plot) return;
  context.strokeStyle = color(name);
  context.lineWidth = 2;
  context.strokeRect(x0 - 1, place.y - 1, Math.max(3, x1 - x0 + 1), place.height + 2);
}

function ticksOf(range, room) {
  const rough = range / Math.max(2, room / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || 10 * power;
  return Math.max(step, 1 / data.tick);
}

function drawAxis() {
  const context = prepared(axisCanvas, layout.width, 24);
  const step = ticksOf(view.end - view.begin, layout.plot);
  context.fillStyle = color("ink2");
  for (let t = Math.ceil(view.begin / step) * step; t <= view.end; t += step) {
    const x = toX(t), text = moment(t, step), width = context.measureText(text).width;
    context.fillRect(Math.round(x), 18, 1, 6);
    context.fillText(text, Math.min(Math.max(x - width / 2, layout.gutter), layout.gutter + layout.plot - width + 8), 10);
  }
}

function drawLanes() {
  const context = prepared(lanesCanvas, layout.width, layout.height);
  const box = lanesCanvas.getBoundingClientRect();
  const step = ticksOf(view.end - view.begin, layout.plot);
  context.fillStyle = color("faint");
  for (let t = Math.ceil(view.begin / step) * step; t <= view.end; t += step) context.fillRect(Math.round(toX(t)), 0, 1, layout.height);
  stages.forEach((stage, index) => {
    const row = layout.rows[index];
    if (stages.length > 16 && (box.top + row.bottom < -200 || box.top + row.top > innerHeight + 200)) return;
    context.textAlign = "left";
    drawWindows(context, stage, row);
    drawCompute(context, stage, row.lanes[0].y, row.lanes[0].height);
    for (let i = 1; i < stage.lanes.length; ++i) {
      drawSpans(context, stage.lanes[i], row.lanes[i].y, row.lanes[i].height, view.begin, view.end);
    }
    drawGap(context, stage, row.lanes[0].y, row.lanes[0].height);
    drawGutter(context, index, row);
    if (index + 1 < stages.length) {
      context.fillStyle = color("line");
      context.fillRect(0, row.bottom - (stages.length <= 16 ? 3 : 1), layout.width, 1);
    }
  });
  if (hovered) outlineOf(context, hovered, "ink2");
  if (selection.stage >= 0) outlineOf(context, selection, "accent");
}

// Drawn once for a width and theme: the passes of the compute lanes in their own colour, each as high as the share of its
// time in which the device works; shares where no more is known.
function overviewImage(width, height) {
  const key = width + "x" + height + color("panel");
  if (overviewImage.key === key) return overviewImage.canvas;
  const canvas = document.createElement("canvas"), scale = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const each = height / stages.length, line = Math.max(1, each - (each > 5 ? 1.5 : 0.3));
  const x = (t) => t / data.step * width;
  stages.forEach((stage, i) => {
    for (const pass of stage.passes) {
      if (HATCHED[pass.family] || !pass.family) continue;
      context.fillStyle = color(pass.family);
      const x0 = x(pass.begin), x1 = x(pass.end);
      context.fillRect(x0, i * each, Math.max(0.4, x1 - x0 - (x1 - x0 > 3 ? 0.6 : 0)), line);
      const exposed = pass.time[KINDS.findIndex((k) => k.id === "exposed")] / (pass.end - pass.begin);
      if (!exposed) continue;
      context.fillStyle = color("exposed");
      context.fillRect(x0, i * each, (x1 - x0) * exposed, line);
    }
    if (!stage.shares) return;
    const length = (gap.end - gap.begin) / stage.shares.length;
    stage.shares.forEach((shares, c) => drawShares(context, x(gap.begin + c * length), x(length) + 0.2, i * each, line, shares));
  });
  overviewImage.key = key;
  overviewImage.canvas = canvas;
  return canvas;
}

function drawOverview() {
  const height = Math.min(64, Math.max(22, stages.length * 9));
  const context = prepared(overviewCanvas, layout.width, height + 14);
  context.drawImage(overviewImage(layout.plot, height), layout.gutter, 7, layout.plot, height);
  const x = (t) => layout.gutter + t / data.step * layout.plot;
  const x0 = x(view.begin), x1 = x(view.end);
  context.fillStyle = color("panel");
  context.globalAlpha = 0.72;
  context.fillRect(layout.gutter, 7, x0 - layout.gutter, height);
  context.fillRect(x1, 7, layout.gutter + layout.plot - x1, height);
  context.globalAlpha = 1;
  context.strokeStyle = color("accent");
  context.lineWidth = 1.5;
  context.strokeRect(Math.min(x0, layout.gutter + layout.plot - 3), 4, Math.max(3, x1 - x0), height + 6);
  context.fillStyle = color("ink3");
  if (layout.gutter >= 100) context.fillText("whole step", 14, 7 + height / 2);
}

function draw() {
  scheduled = false;
  layout = measured();
  drawOverview();
  drawAxis();
  drawLanes();
  for (const follow of followers) follow();
}
function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function setView(begin, end) {
  const shortest = Math.min(data.step, Math.max(20, data.step / 1e6));
  let length = Math.min(data.step, Math.max(shortest, end - begin));
  begin = Math.min(Math.max(0, begin + (end - begin - length) / 2), data.step - length);
  view.begin = begin;
  view.end = begin + length;
  redraw();
}

// Moves there in a few frames, at once where motion is unwelcome.
function glideTo(begin, end) {
  if (still.matches) return setView(begin, end);
  const from = { begin: view.begin, end: view.end }, started = performance.now();
  const frame = (now) => {
    const p = Math.min(1, (now - started) / 220), eased = 1 - (1 - p) ** 3;
    setView(from.begin + (begin - from.begin) * eased, from.end + (end - from.end) * eased);
    if (p < 1) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function zoomAt(t, factor) {
  setView(t - (t - view.begin) * factor, t + (view.end - t) * factor);
}

// The time between the forward passes of two neighbouring microbatches in the middle of the step, on the last stage that
// has both in detail.
function steadyRange() {
  for (let s = stages.length - 1; s >= 0; --s) {
    const lane = stages[s].lanes[0], begins = new Map();
    for (let i = 0; i < lane.size; ++i) {
      if (KINDS[lane.kind[i]].id === "forward" && !begins.has(lane.microbatch[i])) begins.set(lane.microbatch[i], lane.begin[i]);
    }
    const times = [...begins.values()].filter((t) => !gap || t < gap.begin).sort((a, b) => a - b);
    if (times.length < 2) continue;
    const k = Math.min(times.length - 2, Math.floor(times.length / 2));
    const length = times[k + 1] - times[k];
    return [times[k] - length * 0.05, times[k] + length * 1.05];
  }
  return [0, data.step];
}
