// Pointer, wheel and keyboard on the timeline, and what they tell.
class InteractiveTimeline extends Timeline {
  // `choose` is called with the number of the stage on which somebody clicked.
  constructor(parts, follow, choose) {
    super(parts, follow);
    Object.assign(this, { choose, pointers: new Map(), moved: 0, nothingChosen: parts.inspector.textContent });
  }

  show(plan) {
    super.show(plan);
    this.showTip(null);
    this.inspect(null);
  }

  spanAt(x, y) {
    if (!this.layout || x < this.layout.gutter) return null;
    const stage = this.layout.rows.findIndex((row) => y >= row.top && y < row.bottom);
    if (stage < 0) return null;
    const { gap } = this.plan, row = this.layout.rows[stage], t = this.toTime(x);
    const slack = 2 * this.perPixel();
    for (let lane = 0; lane < row.lanes.length; ++lane) {
      const place = row.lanes[lane], top = lane ? place.y - 1 : row.top;
      if (y < top || y >= place.y + place.height + 1) continue;
      const spans = this.plan.stages[stage].lanes[lane];
      const pass = lane === 0 && this.passAt(this.plan.stages[stage], t);
      if (pass) return { stage, lane, pass, index: pass.first };
      let i = firstAfter(spans, t - slack);
      if (i < spans.size && spans.end[i] < t && i + 1 < spans.size && spans.begin[i + 1] <= t) ++i;
      if (i < spans.size && spans.begin[i] <= t + slack) return { stage, lane, index: i };
      if (lane === 0 && gap && t > gap.begin && t < gap.end) return { stage, lane, share: t };
    }
    return null;
  }

  // The pass at `t`, where it is drawn as one block.
  passAt(stage, t) {
    const pass = stage.passes.find((p) => p.begin <= t && t < p.end);
    return pass && this.asBlock(pass) ? pass : null;
  }

  describe(at) {
    const { plan } = this, { gap, kinds } = plan, stage = plan.stages[at.stage];
    if (at.pass) {
      const pass = at.pass, whole = pass.end - pass.begin, parts = [], fine = plan.step / 1e5;
      pass.time.forEach((time, kind) => {
        if (time) parts.push(`${kinds[kind].name} ${plan.duration(time)} (${Math.round(time / whole * 100)}%)`);
      });
      const when = `${plan.moment(pass.begin, fine)} to ${plan.moment(pass.end, fine)}`;
      return { code: stage.name + ", " + pass.label, kind: null, words: parts.join(", "), where: "",
        when: [plural(pass.count, "action"), plan.duration(whole), when].join(" · ") };
    }
    if (at.share !== undefined) {
      const { length } = stage.shares, column = Math.floor((at.share - gap.begin) / (gap.end - gap.begin) * length);
      const parts = stage.shares[Math.min(length - 1, column)].map(
        ([kind, share]) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}% ${kinds[kind].name}`);
      const when = "shares of an interval of " + plan.duration((gap.end - gap.begin) / length);
      return { code: stage.name, kind: null, words: parts.join(", ") || "idle", where: "", when };
    }
    const lane = stage.lanes[at.lane], i = at.index, long = lane.end[i] - lane.begin[i], fine = Math.max(1, plan.step / 1e6);
    const when = `${plan.moment(lane.begin[i], fine)} to ${plan.moment(lane.end[i], fine)}`;
    return {
      code: plan.actionText(lane, i), kind: kinds[lane.kind[i]], words: plan.actionMeaning(lane, i),
      when: (long > 0 ? plan.duration(long) : "no time") + " · " + when, where: stage.name + ", " + lane.name,
    };
  }

  showTip(at, x, y) {
    const d = at && this.describe(at);
    const kind = d?.kind ? [swatch(d.kind.id), d.kind.name] : [];
    showTipAt(this.parts.tip, d && [make("code", {}, d.code), make("div", {}, ...kind), make("div", {}, d.words),
      make("div", { class: "when" }, d.when)], x, y);
  }

  inspect(at) {
    const d = at && this.describe(at);
    const told = d && ` ${d.kind ? d.kind.name + ": " : ""}${d.words} · ${d.when}${d.where ? " · " + d.where : ""}`;
    this.parts.inspector.replaceChildren(...(d ? [make("code", {}, d.code), told] : [this.nothingChosen]));
  }

  select(stage, lane, index) {
    Object.assign(this.selection, { stage, lane, index });
    const spans = this.plan.stages[stage].lanes[lane], begin = spans.begin[index], end = spans.end[index];
    if (end < this.view.begin || begin > this.view.end) this.centre((begin + end) / 2);
    this.inspect(this.selection);
    this.redraw();
  }

  selectNear(stage, lane, t) {
    const spans = this.plan.stages[stage].lanes[lane];
    if (!spans.size) return;
    this.select(stage, lane, Math.min(firstAfter(spans, t), spans.size - 1));
  }

  // To the next lane above or below, over the borders of stages.
  moveLane(by) {
    const { plan: { stages }, selection: { stage, lane, index } } = this, own = stages[stage].lanes[lane];
    const all = stages.flatMap(({ lanes }, stage) => lanes.map((spans, lane) => ({ stage, lane, spans })));
    const reached = all.filter(({ spans }) => spans.size > 0);
    const to = reached[reached.findIndex(({ spans }) => spans === own) + by];
    if (to) this.selectNear(to.stage, to.lane, (own.begin[index] + own.end[index]) / 2);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view, plan, selection: { stage, lane, index } } = this, length = view.end - view.begin, chosen = stage >= 0;
    const spans = chosen ? plan.stages[stage].lanes[lane] : null;
    const middle = chosen ? (spans.begin[index] + spans.end[index]) / 2 : (view.begin + view.end) / 2;
    const pan = (share) => this.moveBy(length * share);
    const first = () => this.selectNear(0, 0, view.begin);
    const along = (by) => {
      if (!chosen) first(); else if (index + by >= 0 && index + by < spans.size) this.select(stage, lane, index + by);
    };
    const across = (by) => chosen ? this.moveLane(by) : first();
    const nearer = () => this.zoomAt(middle, 0.7), further = () => this.zoomAt(middle, 1 / 0.7);
    const actions = {
      "+": nearer, "=": nearer, w: nearer, "-": further, s: further, a: () => pan(-0.2), d: () => pan(0.2),
      "0": () => this.glideTo(0, plan.step), Home: () => this.setView(0, length),
      End: () => this.setView(plan.step - length, plan.step),
      ArrowLeft: () => along(-1), ArrowRight: () => along(1), ArrowUp: () => across(-1), ArrowDown: () => across(1),
      Enter: () => chosen && this.zoomTo(spans.begin[index], spans.end[index]),
      Escape: () => { this.selection.stage = -1; this.inspect(null); this.redraw(); },
    };
    const action = actions[event.key] || actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }

  zoomTo(begin, end) {
    const length = Math.max(end - begin, this.plan.step / 1e5);
    this.glideTo(begin - length * 2, begin + length * 3);
  }

  // One pointer pans, two zoom.
  onPointerDown(event) {
    if (event.button) return;
    this.pointers.set(event.pointerId, event.offsetX);
    this.moved = 0;
    if (event.pointerType === "mouse") this.parts.lanes.setPointerCapture(event.pointerId);
  }
  onPointerMove(event) {
    if (!this.pointers.has(event.pointerId)) {
      if (event.pointerType === "touch") return;
      this.hovered = this.spanAt(event.offsetX, event.offsetY);
      this.showTip(this.hovered, event.clientX, event.clientY);
      if (this.hovered && this.hovered.share !== undefined) this.hovered = null;
      this.redraw();
      return;
    }
    const before = this.pointers.get(event.pointerId), by = event.offsetX - before;
    if (this.pointers.size === 1) {
      this.moved += Math.abs(by);
      if (this.moved < 4) return;
      this.parts.lanes.classList.add("dragging");
      this.showTip(null);
      this.moveBy(-by * this.perPixel());
    } else {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const was = Math.abs(before - other), is = Math.abs(event.offsetX - other);
      if (was > 8 && is > 8) this.zoomAt(this.toTime((event.offsetX + other) / 2), was / is);
    }
    this.pointers.set(event.pointerId, event.offsetX);
  }
  onPointerUp(event) {
    if (this.pointers.has(event.pointerId) && this.moved < 4 && this.pointers.size === 1) {
      const at = this.spanAt(event.offsetX, event.offsetY);
      if (at && at.share === undefined) {
        this.select(at.stage, at.lane, at.index);
        this.choose(at.stage);
        if (event.pointerType === "touch") this.showTip(at, event.clientX, event.clientY);
      } else {
        this.showTip(null);
      }
    }
    this.pointers.delete(event.pointerId);
    this.parts.lanes.classList.remove("dragging");
  }

  onWheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const by = Math.max(-60, Math.min(60, event.deltaY)) * 0.006;
      this.zoomAt(this.toTime(Math.max(this.layout.gutter, event.offsetX)), Math.exp(by));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.moveBy((event.deltaX || event.deltaY) * this.perPixel());
    }
  }

  listen() {
    const { lanes, overview, timeline, tools } = this.parts;
    const onLanes = {
      keydown: (event) => this.onKey(event), wheel: (event) => this.onWheel(event),
      pointerdown: (event) => this.onPointerDown(event), pointermove: (event) => this.onPointerMove(event),
      pointerup: (event) => this.onPointerUp(event), pointercancel: (event) => this.pointers.delete(event.pointerId),
      pointerleave: () => { this.hovered = null; this.showTip(null); this.redraw(); }, blur: () => this.showTip(null),
      dblclick: (event) => this.zoomAt(this.toTime(event.offsetX), 0.25),
    };
    for (const [name, act] of Object.entries(onLanes)) lanes.addEventListener(name, act, { passive: false });
    overview.addEventListener("pointerdown", (event) => overview.setPointerCapture(event.pointerId));
    const show = ({ buttons, offsetX }) => {
      if (buttons) this.centre((offsetX - this.layout.gutter) / this.layout.plot * this.plan.step);
    };
    for (const name of ["pointerdown", "pointermove"]) overview.addEventListener(name, show);
    const middle = () => (this.view.begin + this.view.end) / 2;
    const views = {
      fit: () => this.glideTo(0, this.plan.step), steady: () => this.glideTo(...this.steadyRange()),
      in: () => this.zoomAt(middle(), 0.6), out: () => this.zoomAt(middle(), 1 / 0.6),
    };
    tools.addEventListener("click", (event) => views[event.target.closest("[data-view]")?.dataset.view]?.());
    addEventListener("scroll", () => this.redraw(), { passive: true });
    new ResizeObserver(() => this.redraw()).observe(timeline);
  }
}
