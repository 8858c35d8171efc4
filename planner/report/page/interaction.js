// Pointer, wheel and keyboard on the timeline, and what they tell.
function spanAt(x, y) {
  if (!layout || x < layout.gutter) return null;
  const stage = layout.rows.findIndex((row) => y >= row.top && y < row.bottom);
  if (stage < 0) return null;
  const row = layout.rows[stage], t = toTime(x), slack = (view.end - view.begin) / layout.plot * 2;
  for (let lane = 0; lane < row.lanes.length; ++lane) {
    const place = row.lanes[lane], top = lane ? place.y - 1 : row.top;
    if (y < top || y >= place.y + place.height + 1) continue;
    const spans = stages[stage].lanes[lane];
    const pass = lane === 0 && passAt(stages[stage], t);
    if (pass) return { stage, lane, pass, index: pass.first };
    let i = firstAfter(spans, t - slack);
    if (i < spans.size && spans.end[i] < t && i + 1 < spans.size && spans.begin[i + 1] <= t) ++i;
    if (i < spans.size && spans.begin[i] <= t + slack) return { stage, lane, index: i };
    if (lane === 0 && gap && t > gap.begin && t < gap.end) return { stage, lane, share: t };
  }
  return null;
}

// The pass at `t`, where it is drawn as one block.
function passAt(stage, t) {
  const pass = stage.passes.find((p) => p.begin <= t && t < p.end);
  return pass && asBlock(pass) ? pass : null;
}

function describe(at) {
  const stage = stages[at.stage];
  if (at.pass) {
    const pass = at.pass, whole = pass.end - pass.begin, parts = [];
    pass.time.forEach((time, kind) => { if (time) parts.push(`${KINDS[kind].name} ${duration(time)} (${Math.round(time / whole * 100)}%)`); });
    return { code: stage.name + ", " + pass.label, kind: null, words: parts.join(", "), where: "",
      when: `${pass.count} actions · ${duration(whole)} · ${moment(pass.begin, data.step / 1e5)} to ${moment(pass.end, data.step / 1e5)}` };
  }
  if (at.share !== undefined) {
    const column = Math.min(stage.shares.length - 1, Math.floor((at.share - gap.begin) / (gap.end - gap.begin) * stage.shares.length));
    const parts = stage.shares[column].map(([kind, share]) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}% ${KINDS[kind].name}`);
    return { code: stage.name, kind: null, words: parts.join(", ") || "idle", when: "shares of an interval of " + duration((gap.end - gap.begin) / stage.shares.length) };
  }
  const lane = stage.lanes[at.lane], i = at.index, long = lane.end[i] - lane.begin[i];
  const fine = Math.max(1, data.step / 1e6);
  return {
    code: actionText(lane, i), kind: KINDS[lane.kind[i]], words: actionMeaning(lane, i),
    when: (long > 0 ? duration(long) : "no time") + " · " + moment(lane.begin[i], fine) + " to " + moment(lane.end[i], fine),
    where: stage.name + ", " + lane.name,
  };
}

function showTip(at, x, y) {
  if (!at) { tip.hidden = true; return; }
  const d = describe(at);
  tip.innerHTML = `<code>${escaped(d.code)}</code>` +
    `<div>${d.kind ? `<i class="swatch k-${d.kind.id}"></i>${escaped(d.kind.name)}` : ""}</div>` +
    `<div>${escaped(d.words)}</div><div class="when">${escaped(d.when)}</div>`;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
}

function inspect(at) {
  if (!at) { $("inspector").textContent = "Hover over the timeline, or focus it and use the arrow keys."; return; }
  const d = describe(at);
  $("inspector").innerHTML = `<code>${escaped(d.code)}</code> ${escaped(d.kind ? d.kind.name + ": " : "")}${escaped(d.words)} · ${escaped(d.when)}${d.where ? " · " + escaped(d.where) : ""}`;
}

function select(stage, lane, index) {
  Object.assign(selection, { stage, lane, index });
  const spans = stages[stage].lanes[lane], begin = spans.begin[index], end = spans.end[index];
  if (end < view.begin || begin > view.end) {
    const half = (view.end - view.begin) / 2, middle = (begin + end) / 2;
    setView(middle - half, middle + half);
  }
  inspect(selection);
  redraw();
}

function selectNear(stage, lane, t) {
  const spans = stages[stage].lanes[lane];
  if (!spans.size) return;
  select(stage, lane, Math.min(firstAfter(spans, t), spans.size - 1));
}

// To the next lane above or below, over the borders of stages.
function moveLane(by) {
  let { stage, lane } = selection;
  const spans = stages[stage].lanes[lane], t = (spans.begin[selection.index] + spans.end[selection.index]) / 2;
  do {
    lane += by;
    if (lane < 0) { if (--stage < 0) return; lane = stages[stage].lanes.length - 1; }
    if (lane >= stages[stage].lanes.length) { if (++stage >= stages.length) return; lane = 0; }
  } while (!stages[stage].lanes[lane].size);
  selectNear(stage, lane, t);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const length = view.end - view.begin;
  const chosen = selection.stage >= 0;
  const spans = chosen ? stages[selection.stage].lanes[selection.lane] : null;
  const middle = chosen ? (spans.begin[selection.index] + spans.end[selection.index]) / 2 : (view.begin + view.end) / 2;
  const pan = (share) => setView(view.begin + length * share, view.end + length * share);
  const actions = {
    "+": () => zoomAt(middle, 0.7), "=": () => zoomAt(middle, 0.7), "-": () => zoomAt(middle, 1 / 0.7),
    w: () => zoomAt(middle, 0.7), s: () => zoomAt(middle, 1 / 0.7), a: () => pan(-0.2), d: () => pan(0.2),
    "0": () => glideTo(0, data.step),
    Home: () => setView(0, length), End: () => setView(data.step - length, data.step),
    ArrowLeft: () => chosen ? selection.index > 0 && select(selection.stage, selection.lane, selection.index - 1) : selectNear(0, 0, view.begin),
    ArrowRight: () => chosen ? selection.index + 1 < spans.size && select(selection.stage, selection.lane, selection.index + 1) : selectNear(0, 0, view.begin),
    ArrowUp: () => chosen ? moveLane(-1) : selectNear(0, 0, view.begin),
    ArrowDown: () => chosen ? moveLane(1) : selectNear(0, 0, view.begin),
    Enter: () => chosen && zoomTo(spans.begin[selection.index], spans.end[selection.index]),
    Escape: () => { selection.stage = -1; inspect(null); redraw(); },
  };
  const action = actions[event.key] || actions[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
}

function zoomTo(begin, end) {
  const length = Math.max(end - begin, data.step / 1e5);
  glideTo(begin - length * 2, begin + length * 3);
}

// One pointer pans, two zoom.
const pointers = new Map();
let moved = 0;
function onPointerDown(event) {
  if (event.button) return;
  pointers.set(event.pointerId, event.offsetX);
  moved = 0;
  if (event.pointerType === "mouse") lanesCanvas.setPointerCapture(event.pointerId);
}
function onPointerMove(event) {
  if (!pointers.has(event.pointerId)) {
    if (event.pointerType === "touch") return;
    hovered = spanAt(event.offsetX, event.offsetY);
    if (hovered && hovered.share !== undefined) { showTip(hovered, event.clientX, event.clientY); hovered = null; redraw(); return; }
    showTip(hovered, event.clientX, event.clientY);
    redraw();
    return;
  }
  const before = pointers.get(event.pointerId), by = event.offsetX - before;
  if (pointers.size === 1) {
    moved += Math.abs(by);
    if (moved < 4) return;
    lanesCanvas.classList.add("dragging");
    showTip(null);
    const t = by / layout.plot * (view.end - view.begin);
    setView(view.begin - t, view.end - t);
  } else {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    const was = Math.abs(before - other), is = Math.abs(event.offsetX - other);
    if (was > 8 && is > 8) zoomAt(toTime((event.offsetX + other) / 2), was / is);
  }
  pointers.set(event.pointerId, event.offsetX);
}
function onPointerUp(event) {
  if (pointers.has(event.pointerId) && moved < 4 && pointers.size === 1) {
    const at = spanAt(event.offsetX, event.offsetY);
    if (at && at.share === undefined) {
      select(at.stage, at.lane, at.index);
      chooseStage(at.stage);
      if (event.pointerType === "touch") showTip(at, event.clientX, event.clientY);
    } else {
      showTip(null);
    }
  }
  pointers.delete(event.pointerId);
  lanesCanvas.classList.remove("dragging");
}

function onWheel(event) {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoomAt(toTime(Math.max(layout.gutter, event.offsetX)), Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    const by = (event.deltaX || event.deltaY) / layout.plot * (view.end - view.begin);
    setView(view.begin + by, view.end + by);
  }
}

function overviewTo(event) {
  const t = (event.offsetX - layout.gutter) / layout.plot * data.step, half = (view.end - view.begin) / 2;
  setView(t - half, t + half);
}

function startTimeline() {
  for (const id of ["timeline", "tools", "inspector", "keys", "zoom-note"]) $(id).hidden = false;
  lanesCanvas.addEventListener("keydown", onKey);
  lanesCanvas.addEventListener("pointerdown", onPointerDown);
  lanesCanvas.addEventListener("pointermove", onPointerMove);
  lanesCanvas.addEventListener("pointerup", onPointerUp);
  lanesCanvas.addEventListener("pointercancel", (event) => { pointers.delete(event.pointerId); });
  lanesCanvas.addEventListener("pointerleave", () => { hovered = null; showTip(null); redraw(); });
  lanesCanvas.addEventListener("blur", () => showTip(null));
  lanesCanvas.addEventListener("wheel", onWheel, { passive: false });
  lanesCanvas.addEventListener("dblclick", (event) => zoomAt(toTime(event.offsetX), 0.25));
  overviewCanvas.addEventListener("pointerdown", (event) => { overviewCanvas.setPointerCapture(event.pointerId); overviewTo(event); });
  overviewCanvas.addEventListener("pointermove", (event) => { if (event.buttons) overviewTo(event); });
  const middle = () => (view.begin + view.end) / 2;
  const views = {
    fit: () => glideTo(0, data.step), steady: () => glideTo(...steadyRange()),
    in: () => zoomAt(middle(), 0.6), out: () => zoomAt(middle(), 1 / 0.6),
  };
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", views[button.dataset.view]);
  addEventListener("resize", redraw);
  addEventListener("scroll", redraw, { passive: true });
}
