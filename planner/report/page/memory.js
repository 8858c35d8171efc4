// One stage's memory: at its peak as a waterfall, which the data has as HTML, and its activations over time.
const MEMORY_HEIGHT = 240, MEMORY_LEFT = 62;

// Index of the last point of a stage that is not after `t`, or 0 if there is none.
const pointBefore = (times, t) => Math.max(0, firstOf(times.length, (i) => times[i] > t) - 1);

class MemoryOfStage {
  // `parts`: the elements of the plan's view by id. The course over time follows the timeline.
  constructor(parts, timeline) { Object.assign(this, { parts, timeline, plan: null, stage: null, cursor: null }); }

  // Shows another plan: the stage that somebody chose, if it has one of this number; otherwise its fullest stage.
  show(plan) {
    const list = this.parts["stage-select"], kept = this.byHand && Number(list.value) < plan.stages.length;
    const stage = kept ? Number(list.value) : plan.fullest;
    this.plan = plan;
    this.cursor = null;
    list.replaceChildren(...plan.stages.map((stage, i) => new Option(i + " · " + stage.layers, i)));
    this.choose(stage, false);
  }

  // `byHand`: somebody has chosen the stage.
  choose(index, byHand) {
    this.byHand ||= byHand;
    this.parts["stage-select"].value = String(index);
    this.stage = this.plan.stages[index];
    this.parts.waterfall.replaceChildren(fragmentOf(this.stage.waterfall));
    setText(this.parts["waterfall-caption"], `${this.stage.name} at its peak, by kind`);
    this.draw();
  }

  listen() {
    const list = this.parts["stage-select"], canvas = this.parts["memory-time"];
    list.addEventListener("change", () => this.choose(Number(list.value), true));
    const point = (x) => { this.cursor = x; this.draw(); };
    canvas.addEventListener("pointermove", (event) => point(event.offsetX < MEMORY_LEFT ? null : event.offsetX));
    canvas.addEventListener("pointerleave", () => point(null));
  }

  draw() {
    const canvas = this.parts["memory-time"], width = canvas.clientWidth, { stage, timeline: { view } } = this;
    if (!width || !stage) return;
    const top = 10, depth = MEMORY_HEIGHT - top - 22, plot = width - MEMORY_LEFT - 10;
    const context = prepared(canvas, width, MEMORY_HEIGHT);
    const most = Math.max(stage.arenaLimit, stage.arena) * 1.04 || 1;
    const x = (t) => MEMORY_LEFT + (t - view.begin) / (view.end - view.begin) * plot;
    const y = (v) => top + depth - v / most * depth;
    this.drawAxes(context, x, y, most, plot);
    context.save();
    context.beginPath();
    context.rect(MEMORY_LEFT, 0, plot, MEMORY_HEIGHT);
    context.clip();
    this.drawKinds(context, x, y);
    if (this.cursor !== null) {
      context.fillStyle = color("ink2");
      context.fillRect(Math.round(this.cursor), top, 1, depth);
    }
    context.restore();
    if (stage.arenaLimit) {
      const at = y(stage.arenaLimit), right = MEMORY_LEFT + plot;
      context.fillStyle = color("ink");
      for (let from = MEMORY_LEFT; from < right; from += 7) context.fillRect(from, Math.round(at), 4, 1.5);
      context.textAlign = "right";
      context.fillText("activation limit " + bytes(stage.arenaLimit), right - 2, at + (at < top + 14 ? 9 : -8));
    }
    this.read(plot);
  }

  drawAxes(context, x, y, most, plot) {
    const { view } = this.timeline;
    context.textAlign = "right";
    for (const v of ticksBetween(0, most, 4, { ofBytes: true }).values) {
      context.fillStyle = color("faint");
      context.fillRect(MEMORY_LEFT, Math.round(y(v)), plot, 1);
      context.fillStyle = color("ink3");
      context.fillText(shortened(bytes(v)), MEMORY_LEFT - 8, y(v));
    }
    context.fillStyle = color("ink2");
    context.textAlign = "center";
    const { step, values } = this.plan.ticks(view, plot);
    for (const t of values) {
      const at = x(t), inside = at > MEMORY_LEFT + 20 && at < MEMORY_LEFT + plot - 20;
      if (inside) context.fillText(this.plan.moment(t, step), at, MEMORY_HEIGHT - 9);
    }
  }

  // The kinds of memory, one upon the other.
  drawKinds(context, x, y) {
    const { times, values, unit, kinds } = this.stage.memory, { view } = this.timeline;
    const first = pointBefore(times, view.begin);
    let last = first;
    while (last + 1 < times.length && times[last + 1] < view.end) ++last;
    const base = new Float64Array(last - first + 1), end = x(Math.min(view.end, this.plan.step));
    kinds.forEach((kind, k) => {
      context.fillStyle = color(this.plan.memoryKinds[kind].id);
      context.beginPath();
      for (let i = first; i <= last; ++i) {
        const low = base[i - first], high = low + values[i * kinds.length + k] * unit;
        const x0 = x(times[i]), x1 = i + 1 <= last ? x(times[i + 1]) : end;
        context.rect(x0, y(high), Math.max(0.6, x1 - x0 + 0.2), y(low) - y(high));
        base[i - first] = high;
      }
      context.fill();
    });
  }

  // Tells what the memory holds where the pointer is.
  read(plot) {
    const { stage, plan, cursor, timeline: { view } } = this, { times, values, unit, kinds } = stage.memory;
    let text = `Largest: ${bytes(stage.livePeak)} of live buffers in an arena of ${bytes(stage.arena)}.`;
    if (cursor !== null) {
      const t = view.begin + (cursor - MEMORY_LEFT) / plot * (view.end - view.begin), i = pointBefore(times, t);
      const amounts = kinds.map((_, k) => values[i * kinds.length + k] * unit);
      const parts = kinds.map((kind, k) => amounts[k] && `${plan.memoryKinds[kind].name} ${bytes(amounts[k])}`).filter(Boolean);
      text = `${plan.moment(t, plan.step / 1e4)}: ${bytes(amounts.reduce((sum, amount) => sum + amount, 0))}`;
      if (parts.length > 0) text += ` (${parts.join(", ")})`;
    }
    setText(this.parts["memory-read"], text);
  }
}
