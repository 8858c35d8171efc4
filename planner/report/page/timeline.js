// The timeline: one row a stage with its windows, its compute lane and its transfers, drawn on a canvas; an overview of
// the whole step above it. `view` is the range of time shown; all that shows time follows it.
const HATCHED = { wait: true, copywait: true, stall: true };
const WINDOWS = { tensor: true, data: true, copy: true };

// The layers of a stage, such as "embed 0-1, 16-17, 32-33", in a text that is at most `room` wide: as many of them as fit, and
// how many ranges follow; without words if not even one fits otherwise; empty if nothing fits.
function layersWithin(context, layers, room) {
  const ranges = layers.split(", "), plain = ranges.map((range) => range.replace(/embed | head/g, ""));
  const texts = [ranges, plain].flatMap((all) => all.map((_, i) => all.slice(0, all.length - i).join(", ") +
    (i > 0 ? " + " + i + " more" : "")));
  return texts.find((text) => context.measureText(text).width <= room) ?? "";
}

class Timeline {
  // `parts`: the elements of the plan's view by id. `follow` is called after each drawing.
  constructor(parts, follow) {
    Object.assign(this, { parts, follow, plan: null, view: { begin: 0, end: 1 }, layout: null, overview: null });
    Object.assign(this, { selection: { stage: -1, lane: 0, index: 0 }, hovered: null, scheduled: false });
  }

  // Shows another plan. The part of the step that is shown stays the same, if the plan has as many stages.
  show(plan) {
    const before = this.plan, { begin, end } = this.view;
    const scale = before && before.stages.length === plan.stages.length ? plan.step / before.step : 0;
    Object.assign(this, { plan, overview: null, hovered: null, selection: { stage: -1, lane: 0, index: 0 } });
    this.layout = this.measured(); // for pointers and keys that come before the plan is drawn
    this.setView(...(scale > 0 ? [begin * scale, end * scale] : [0, plan.step]));
  }

  measured() {
    const width = this.parts.timeline.clientWidth, many = this.plan.stages.length;
    const strands = this.plan.strands > 1 && many <= 8 ? this.plan.strands * 15 : 0;
    const compute = Math.max(many <= 4 ? 30 : many <= 8 ? 24 : many <= 16 ? 17 : 11, strands);
    const transfer = many <= 8 ? 7 : many <= 16 ? 5 : 3;
    const gutter = width < 640 ? 54 : 118;
    const rows = [];
    let y = 6;
    for (const stage of this.plan.stages) {
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

  toX(t) { return this.layout.gutter + (t - this.view.begin) / (this.view.end - this.view.begin) * this.layout.plot; }
  toTime(x) { return this.view.begin + (x - this.layout.gutter) * this.perPixel(); }
  perPixel() { return (this.view.end - this.view.begin) / this.layout.plot; }

  // The coordinates of a range of time, within the plot.
  clipped(begin, end) {
    const { gutter, plot } = this.layout;
    return [Math.max(gutter, this.toX(begin)), Math.min(gutter + plot, this.toX(end))];
  }

  fillOf(context, kind) {
    const id = this.plan.kinds[kind].id;
    return HATCHED[id] ? hatch(context, id) : color(id);
  }

  // Passes that run side by side (strands) have a part each of the compute lane, one above the other. Waiting, and what belongs
  // to no microbatch, takes the whole height.
  placeOf(lane, i, y, height) {
    const id = this.plan.kinds[lane.kind[i]].id;
    if (this.plan.strands === 1 || lane !== lane.stage.lanes[0] || HATCHED[id] || lane.microbatch[i] < 0) return { y, height };
    const strand = this.plan.strandsAreMicrobatches ? lane.microbatch[i] % this.plan.strands : id === "forward" ? 0 : 1;
    const each = height / this.plan.strands;
    return { y: y + strand * each, height: each - 1 };
  }

  // A column of one pixel in which several spans lie: their shares, one above the other. Waiting is left out: at this
  // scale hatching would only be noise.
  drawShares(context, x, width, y, height, shares) {
    let at = y + height;
    for (const [kind, share] of shares) {
      if (HATCHED[this.plan.kinds[kind].id]) continue;
      const part = Math.min(share * height, at - y);
      at -= part;
      context.fillStyle = color(this.plan.kinds[kind].id);
      context.fillRect(x, at, width, part);
    }
  }

  // The first of the texts that fits, in the middle of a block.
  drawLabel(context, texts, id, x, width, y, height) {
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

  drawSpans(context, lane, y, height, begin, end) {
    let column = -1, shares = new Map();
    const flush = () => {
      this.drawShares(context, column, 1, y, height, [...shares].sort((a, b) => a[0] - b[0]));
      column = -1;
      shares = new Map();
    };
    const perPixel = this.perPixel();
    for (let i = firstAfter(lane, begin); i < lane.size && lane.begin[i] < end; ++i) {
      const [x0, x1] = this.clipped(lane.begin[i], lane.end[i]), width = x1 - x0;
      if (width < 1.2) {
        if (width <= 0) continue;
        const at = Math.floor(x0);
        if (at !== column) { flush(); column = at; }
        shares.set(lane.kind[i], (shares.get(lane.kind[i]) || 0) + (lane.end[i] - lane.begin[i]) / perPixel);
        continue;
      }
      flush();
      const place = this.placeOf(lane, i, y, height);
      context.fillStyle = this.fillOf(context, lane.kind[i]);
      context.fillRect(x0, place.y, width > 4 ? width - 1 : width, place.height);
      if (HATCHED[this.plan.kinds[lane.kind[i]].id] && width > 4) {
        context.strokeStyle = color("line");
        context.lineWidth = 1;
        context.strokeRect(x0 + 0.5, place.y + 0.5, width - 2, place.height - 1);
      }
      const full = this.plan.actionText(lane, i).replace(/^\d+/, "");
      const texts = [full, full.replace(/\(.*/, ""), full.split(":")[0]];
      this.drawLabel(context, texts, this.plan.kinds[lane.kind[i]].id, x0, width, place.y, place.height);
    }
    flush();
  }

  // Whether a pass is drawn as one block.
  asBlock(pass) {
    const width = (pass.end - pass.begin) / this.perPixel();
    return width >= 3 && pass.count >= 2 && width / pass.count <= 4;
  }

  // The compute lane: passes whose actions would be too narrow are one block each, divided by where their time goes; the
  // others are drawn action by action.
  drawCompute(context, stage, y, height) {
    const lane = stage.lanes[0];
    let plain = null;  // a run of passes that are drawn action by action
    const flush = () => {
      if (plain) this.drawSpans(context, lane, y, height, plain.begin, plain.end);
      plain = null;
    };
    const first = firstOf(stage.passes.length, (i) => stage.passes[i].end > this.view.begin);
    for (let i = first; i < stage.passes.length && stage.passes[i].begin < this.view.end; ++i) {
      const pass = stage.passes[i];
      if (!this.asBlock(pass)) {
        if (!plain) plain = { begin: Math.max(pass.begin, this.view.begin), end: 0 };
        plain.end = Math.min(pass.end, this.view.end);
        continue;
      }
      flush();
      this.drawPass(context, pass, y, height);
    }
    flush();
  }

  drawPass(context, pass, y, height) {
    const x0 = this.toX(pass.begin), width = this.toX(pass.end) - x0, whole = pass.end - pass.begin;
    const inner = width > 6 ? width - 1 : width, [from, right] = this.clipped(pass.begin, pass.end);
    const to = Math.min(right, x0 + inner);
    if (to <= from) return;
    context.save();
    context.beginPath();
    context.rect(from, y, to - from, height);
    context.clip();
    let at = x0, main = 0;
    pass.time.forEach((time, kind) => {
      if (!time) return;
      const part = time / whole * inner;
      context.fillStyle = this.fillOf(context, kind);
      context.fillRect(at, y, part + 0.3, height);
      if (this.plan.kinds[kind].id === pass.family) main = part;
      at += part;
    });
    context.restore();
    if (x0 < this.layout.gutter) return;
    if (main >= 14) this.drawLabel(context, [pass.label], pass.family, x0, Math.min(main, to - x0), y, height);
  }

  // The part of the step of which only shares are known.
  drawGap(context, stage, y, height) {
    const { plan: { gap }, view } = this;
    if (!gap || !stage.shares || gap.end <= view.begin || gap.begin >= view.end) return;
    const columns = stage.shares.length, each = (gap.end - gap.begin) / columns;
    const first = Math.max(0, Math.floor((view.begin - gap.begin) / each));
    const last = Math.min(columns - 1, Math.floor((view.end - gap.begin) / each));
    for (let i = first; i <= last; ++i) {
      const [x0, x1] = this.clipped(gap.begin + i * each, gap.begin + (i + 1) * each);
      this.drawShares(context, x0, x1 - x0 + 0.3, y, height, stage.shares[i]);
    }
  }

  drawWindows(context, stage, row) {
    for (const lane of stage.lanes.slice(1)) {
      for (let i = firstAfter(lane, this.view.begin); i < lane.size && lane.begin[i] < this.view.end; ++i) {
        const id = this.plan.kinds[lane.kind[i]].id;
        if (!WINDOWS[id]) continue;
        const [x0, x1] = this.clipped(lane.begin[i], lane.end[i]);
        if (x1 - x0 < 0.8) continue;
        context.fillStyle = color("ink3");
        context.fillRect(x0, row.rail, x1 - x0, 2);
        if (x1 - x0 > 3) { context.fillRect(x0, row.rail, 1, 5); context.fillRect(x1 - 1, row.rail, 1, 5); }
      }
    }
  }

  drawGutter(context, index, row) {
    const stage = this.plan.stages[index], height = row.bottom - row.top;
    if (height < 10 && index % 2) return;
    const middle = row.compute + row.lanes[0].height / 2;
    context.textAlign = "left";
    const small = this.layout.gutter < 100, tall = height > 34 && !small, size = height < 20 ? 10 : 12;
    const name = small ? String(index) : stage.name;
    context.fillStyle = color("ink");
    context.font = "600 " + size + "px system-ui, sans-serif";
    context.fillText(name, 14, tall ? middle - 7 : middle);
    if (!small) {
      const beside = 14 + context.measureText(name).width + 7;
      context.font = Math.min(size, 11) + "px system-ui, sans-serif";
      context.fillStyle = color("ink3");
      const at = tall ? 14 : beside;
      context.fillText(layersWithin(context, stage.layers, this.layout.gutter - 4 - at), at, tall ? middle + 8 : middle);
    }
    context.font = "11px system-ui, sans-serif";
  }

  outlineOf(context, at, name) {
    const lane = this.plan.stages[at.stage].lanes[at.lane], whole = this.layout.rows[at.stage].lanes[at.lane];
    const place = at.pass ? whole : this.placeOf(lane, at.index, whole.y, whole.height);
    const [begin, end] = at.pass ? [at.pass.begin, at.pass.end] : [lane.begin[at.index], lane.end[at.index]];
    const [x0, x1] = this.clipped(begin, end);
    if (x1 < x0) return;
    context.strokeStyle = color(name);
    context.lineWidth = 2;
    context.strokeRect(x0 - 1, place.y - 1, Math.max(3, x1 - x0 + 1), place.height + 2);
  }

  drawAxis() {
    const context = prepared(this.parts.axis, this.layout.width, 24);
    const { step, values } = this.plan.ticks(this.view, this.layout.plot), { gutter, plot } = this.layout;
    context.fillStyle = color("ink2");
    for (const t of values) {
      const x = this.toX(t), text = this.plan.moment(t, step), width = context.measureText(text).width;
      context.fillRect(Math.round(x), 18, 1, 6);
      context.fillText(text, Math.min(Math.max(x - width / 2, gutter), gutter + plot - width + 8), 10);
    }
  }

  drawLanes() {
    const context = prepared(this.parts.lanes, this.layout.width, this.layout.height);
    const box = this.parts.lanes.getBoundingClientRect();
    const { stages } = this.plan;
    context.fillStyle = color("faint");
    for (const t of this.plan.ticks(this.view, this.layout.plot).values) {
      context.fillRect(Math.round(this.toX(t)), 0, 1, this.layout.height);
    }
    stages.forEach((stage, index) => {
      const row = this.layout.rows[index];
      if (stages.length > 16 && (box.top + row.bottom < -200 || box.top + row.top > innerHeight + 200)) return;
      context.textAlign = "left";
      this.drawWindows(context, stage, row);
      this.drawCompute(context, stage, row.lanes[0].y, row.lanes[0].height);
      for (let i = 1; i < stage.lanes.length; ++i) {
        this.drawSpans(context, stage.lanes[i], row.lanes[i].y, row.lanes[i].height, this.view.begin, this.view.end);
      }
      this.drawGap(context, stage, row.lanes[0].y, row.lanes[0].height);
      this.drawGutter(context, index, row);
      if (index + 1 < stages.length) {
        context.fillStyle = color("line");
        context.fillRect(0, row.bottom - (stages.length <= 16 ? 3 : 1), this.layout.width, 1);
      }
    });
    if (this.hovered) this.outlineOf(context, this.hovered, "ink2");
    if (this.selection.stage >= 0) this.outlineOf(context, this.selection, "accent");
  }

  // Drawn once for a width and theme: the passes of the compute lanes in their own colour, each as high as the share of its
  // time in which the device works; shares where no more is known.
  overviewImage(width, height) {
    const { plan } = this, key = width + "x" + height + color("panel");
    if (this.overview?.key === key) return this.overview.canvas;
    const canvas = make("canvas"), context = prepared(canvas, width, height);
    const each = height / plan.stages.length, line = Math.max(1, each - (each > 5 ? 1.5 : 0.3));
    const x = (t) => t / plan.step * width, ofExposed = plan.kinds.findIndex((k) => k.id === "exposed");
    plan.stages.forEach((stage, i) => {
      for (const pass of stage.passes) {
        if (HATCHED[pass.family] || !pass.family) continue;
        context.fillStyle = color(pass.family);
        const x0 = x(pass.begin), x1 = x(pass.end);
        context.fillRect(x0, i * each, Math.max(0.4, x1 - x0 - (x1 - x0 > 3 ? 0.6 : 0)), line);
        const exposed = pass.time[ofExposed] / (pass.end - pass.begin);
        if (!exposed) continue;
        context.fillStyle = color("exposed");
        context.fillRect(x0, i * each, (x1 - x0) * exposed, line);
      }
      if (!stage.shares) return;
      const { begin, end } = plan.gap, length = (end - begin) / stage.shares.length;
      stage.shares.forEach((shares, c) => {
        this.drawShares(context, x(begin + c * length), x(length) + 0.2, i * each, line, shares);
      });
    });
    this.overview = { key, canvas };
    return canvas;
  }

  drawOverview() {
    const { view, layout: { gutter, plot, width } } = this, height = Math.min(64, Math.max(22, this.plan.stages.length * 9));
    const context = prepared(this.parts.overview, width, height + 14);
    context.drawImage(this.overviewImage(plot, height), gutter, 7, plot, height);
    const x = (t) => gutter + t / this.plan.step * plot;
    const x0 = x(view.begin), x1 = x(view.end);
    context.fillStyle = color("panel");
    context.globalAlpha = 0.72;
    context.fillRect(gutter, 7, x0 - gutter, height);
    context.fillRect(x1, 7, gutter + plot - x1, height);
    context.globalAlpha = 1;
    context.strokeStyle = color("accent");
    context.lineWidth = 1.5;
    context.strokeRect(Math.min(x0, gutter + plot - 3), 4, Math.max(3, x1 - x0), height + 6);
    context.fillStyle = color("ink3");
    if (gutter >= 100) context.fillText("whole step", 14, 7 + height / 2);
  }

  draw() {
    this.scheduled = false;
    this.layout = this.measured();
    if (!(this.layout.plot > 0)) return;  // nobody sees it now
    this.drawOverview();
    this.drawAxis();
    this.drawLanes();
    this.follow();
  }
  redraw() {
    if (this.scheduled || this.plan === null) return;
    this.scheduled = true;
    requestAnimationFrame(() => this.draw());
  }

  setView(begin, end) {
    const shortest = Math.min(this.plan.step, Math.max(20, this.plan.step / 1e6));
    let length = Math.min(this.plan.step, Math.max(shortest, end - begin));
    begin = Math.min(Math.max(0, begin + (end - begin - length) / 2), this.plan.step - length);
    this.view.begin = begin;
    this.view.end = begin + length;
    this.redraw();
  }

  moveBy(t) { this.setView(this.view.begin + t, this.view.end + t); }
  centre(t) { this.moveBy(t - (this.view.begin + this.view.end) / 2); }

  // Moves there in a few frames, at once where motion is unwelcome.
  glideTo(begin, end) {
    if (still.matches) return this.setView(begin, end);
    const from = { begin: this.view.begin, end: this.view.end }, started = performance.now();
    const frame = (now) => {
      const p = Math.min(1, (now - started) / 220), eased = 1 - (1 - p) ** 3;
      this.setView(from.begin + (begin - from.begin) * eased, from.end + (end - from.end) * eased);
      if (p < 1) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  zoomAt(t, factor) {
    this.setView(t - (t - this.view.begin) * factor, t + (this.view.end - t) * factor);
  }

  // The time between the forward passes of two neighbouring microbatches in the middle of the step, on the last stage that
  // has both in detail.
  steadyRange() {
    for (let s = this.plan.stages.length - 1; s >= 0; --s) {
      const lane = this.plan.stages[s].lanes[0], begins = new Map();
      for (let i = 0; i < lane.size; ++i) {
        const first = this.plan.kinds[lane.kind[i]].id === "forward" && !begins.has(lane.microbatch[i]);
        if (first) begins.set(lane.microbatch[i], lane.begin[i]);
      }
      const times = [...begins.values()].filter((t) => !this.plan.gap || t < this.plan.gap.begin).sort((a, b) => a - b);
      if (times.length < 2) continue;
      const k = Math.min(times.length - 2, Math.floor(times.length / 2));
      const length = times[k + 1] - times[k];
      return [times[k] - length * 0.05, times[k] + length * 1.05];
    }
    return [0, this.plan.step];
  }
}
