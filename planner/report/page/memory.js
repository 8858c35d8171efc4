// One stage's memory: at its peak as a waterfall against the limit, and its activations over time.
let chosen = 0, cursor = null;
const timeCanvas = $("memory-time");

function drawWaterfall() {
  const stage = stages[chosen], steps = [];
  let at = 0;
  MEMORY.forEach((kind, i) => {
    if (stage.peak[i] === 0) return;
    steps.push({ id: kind.id, name: kind.name, from: at, size: stage.peak[i] });
    at += stage.peak[i];
  });
  const total = at, limit = stage.limit, whole = Math.max(total, limit) || 1;
  const percent = (v) => (v / whole * 100).toFixed(3) + "%";
  const row = (s, amount, className) =>
    `<span>${escaped(s.name)}</span><span class="track"><i class="${className}" style="left:${percent(s.from)};width:${percent(s.size)}"></i>` +
    (limit ? `<u style="left:${percent(limit)}"></u>` : "") + `</span><span class="amount">${amount}</span>`;
  let html = steps.map((s) => row(s, bytes(s.size), "k-" + s.id)).join("");
  html += `<span class="sum">together</span><span></span><span class="amount sum">${bytes(total)}</span>`;
  if (limit) {
    html += limit >= total
      ? row({ name: "free", from: total, size: limit - total }, bytes(limit - total), "k-free")
      : row({ name: "over the limit", from: limit, size: total - limit }, bytes(total - limit), "k-over");
    html += `<span class="sum">limit</span><span></span><span class="amount sum">${bytes(limit)}</span>`;
  }
  $("waterfall").innerHTML = `<div class="fall">${html}</div>`;
  $("waterfall-caption").textContent = `${stage.name} at its peak, by kind` + (limit ? ", against the limit" : "");
}

// A round size of at least `rough` bytes.
function byteStep(rough) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, rough)) / 10));
  return unit * ([1, 2, 5, 10, 20, 50, 100, 200, 500].find((k) => k * unit >= rough) || 1024);
}

// Points of a stage from the last one before `begin` on.
function pointBefore(times, t) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle + 1; else high = middle;
  }
  return Math.max(0, low - 1);
}

function drawMemory() {
  const stage = stages[chosen], width = timeCanvas.clientWidth, height = 240;
  if (!width) return;
  const context = prepared(timeCanvas, width, height);
  const left = 62, right = 10, top = 10, bottom = 22, plot = width - left - right, depth = height - top - bottom;
  const { times, values, unit } = stage.memory, kinds = stage.memory.kinds;
  let most = stage.arenaLimit || stage.arena;
  most = Math.max(most, stage.arena) * 1.04 || 1;
  const x = (t) => left + (t - view.begin) / (view.end - view.begin) * plot;
  const y = (v) => top + depth - v / most * depth;
  context.fillStyle = color("ink3");
  context.textAlign = "right";
  const each = byteStep(most / 4);
  for (let v = 0; v <= most; v += each) {
    context.fillStyle = color("faint");
    context.fillRect(left, Math.round(y(v)), plot, 1);
    context.fillStyle = color("ink3");
    context.fillText(bytes(v).replace(".0 ", " "), left - 8, y(v));
  }
  context.save();
  context.beginPath();
  context.rect(left, 0, plot, height);
  context.clip();
  const first = pointBefore(times, view.begin);
  let last = first;
  while (last + 1 < times.length && times[last + 1] < view.end) ++last;
  const base = new Float64Array(last - first + 1);
  kinds.forEach((kind, k) => {
    context.fillStyle = color(MEMORY[kind].id);
    context.beginPath();
    const edge = (i) => (i + 1 <= last ? x(times[i + 1]) : x(Math.min(view.end, data.step)));
    for (let i = first; i <= last; ++i) {
      const low = base[i - first], high = low + values[i * kinds.length + k] * unit;
      const x0 = x(times[i]), x1 = edge(i);
      context.rect(x0, y(high), Math.max(0.6, x1 - x0 + 0.2), y(low) - y(high));
      base[i - first] = high;
    }
    context.fill();
  });
  if (cursor !== null) {
    context.fillStyle = color("ink2");
    context.fillRect(Math.round(cursor), top, 1, depth);
  }
  context.restore();
  if (stage.arenaLimit) {
    context.fillStyle = color("ink");
    for (let at = left; at < left + plot; at += 7) context.fillRect(at, Math.round(y(stage.arenaLimit)), 4, 1.5);
    context.textAlign = "right";
    context.fillText("activation limit " + bytes(stage.arenaLimit), left + plot - 2, y(stage.arenaLimit) + (y(stage.arenaLimit) < top + 14 ? 9 : -8));
  }
  const step = ticksOf(view.end - view.begin, plot);
  context.fillStyle = color("ink2");
  context.textAlign = "center";
  for (let t = Math.ceil(view.begin / step) * step; t <= view.end; t += step) {
    const at = x(t);
    if (at > left + 20 && at < left + plot - 20) context.fillText(moment(t, step), at, height - 9);
  }
  readMemory(stage, kinds, times, values, unit, left, plot);
}

function readMemory(stage, kinds, times, values, unit, left, plot) {
  const t = cursor === null ? null : view.begin + (cursor - left) / plot * (view.end - view.begin);
  if (t === null) {
    $("memory-read").textContent = `Largest: ${bytes(stage.livePeak)} of live buffers in an arena of ${bytes(stage.arena)}.`;
    return;
  }
  const i = pointBefore(times, t);
  let total = 0;
  const parts = kinds.map((kind, k) => {
    const v = values[i * kinds.length + k] * unit;
    total += v;
    return v ? `${MEMORY[kind].name} ${bytes(v)}` : "";
  }).filter(Boolean);
  $("memory-read").textContent = `${moment(t, data.step / 1e4)}: ${bytes(total)}` + (parts.length ? " (" + parts.join(", ") + ")" : "");
}

function chooseStage(index) {
  if (index === chosen && $("stage-select").value === String(index) && chooseStage.done) return;
  chooseStage.done = true;
  chosen = index;
  $("stage-select").value = String(index);
  drawWaterfall();
  if (layout) drawMemory();
}

function startMemory() {
  const list = $("stage-select");
  stages.forEach((stage, i) => list.add(new Option(i + " · " + stage.layers, i)));
  list.addEventListener("change", () => chooseStage(Number(list.value)));
  $("stage-detail").hidden = false;
  timeCanvas.addEventListener("pointermove", (event) => { cursor = event.offsetX < 62 ? null : event.offsetX; drawMemory(); });
  timeCanvas.addEventListener("pointerleave", () => { cursor = null; drawMemory(); });
  followers.push(drawMemory);
  chooseStage(data.fullest);
}
