"use strict";
// A plan's data as what is drawn needs it: spans of all stages as typed arrays, and how times of the step are written.
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
  const pair = (digits) => [parseInt(digits[0], 36), parseInt(digits.slice(1), 36) / 1000];
  return text.split(";").map((column) => (column.match(/.../g) ?? []).map(pair));
}

// For views in which actions are too narrow: runs of the compute lane that belong to one pass of one microbatch, with the
// time of each kind in them. Recomputation and waits for collectives count to the run they stand in; a wait for a stage,
// the optimizer and what belongs to no microbatch are runs of their own.
function makePasses(plan, lane) {
  const passes = [];
  let open = null;
  for (let i = 0; i < lane.size; ++i) {
    const id = plan.kinds[lane.kind[i]].id, long = lane.end[i] - lane.begin[i];
    const main = id === "forward" || id === "backward" || id === "weight";
    const alone = id === "stall" || id === "optimizer" || (id === "wait" && lane.microbatch[i] < 0);
    if (alone && !long) continue;
    const family = alone ? id : id === "weight" && open && open.microbatch === lane.microbatch[i] ? open.family : id;
    const other = open && (lane.begin[i] > open.end || alone || open.alone ||
      (main && open.family !== null && (open.family !== family || open.microbatch !== lane.microbatch[i])));
    if (!open || other) {
      open = { begin: lane.begin[i], end: lane.end[i], count: 0, family: null, microbatch: -1, first: i, alone,
        time: new Float64Array(plan.kinds.length) };
      passes.push(open);
    }
    if (open.family === null && (main || alone)) {
      open.family = family;
      open.microbatch = lane.microbatch[i];
      open.label = plan.actionText(lane, i).replace(/^\d+/, "").split(":")[0];
    }
    open.end = Math.max(open.end, lane.end[i]);
    open.count += long > 0;
    open.time[lane.kind[i]] += long;
  }
  return passes;
}

class PlanModel {
  // `data`: PlanParts::data (planner/report/html_page.h), parsed. It is not changed.
  constructor(data) {
    Object.assign(this, data);
    this.gap = data.detail.length > 1 ? { begin: data.detail[0][1], end: data.detail[1][0] } : null;
    this.stages = data.stages.map((s) => {
      let t = 0;  // times come as differences
      const memory = { ...s.memory, times: s.memory.times.map((by) => (t += by)) };
      const stage = { ...s, lanes: makeLanes(s), shares: makeShares(s.shares), memory };
      for (const lane of stage.lanes) lane.stage = stage;
      stage.passes = makePasses(this, stage.lanes[0]);
      return stage;
    });
  }

  actionText(lane, i) { return this.texts[lane.text[i]][0].replace("#", lane.microbatch[i]); }
  actionMeaning(lane, i) { return this.texts[lane.text[i]][1].replace("#", lane.microbatch[i]); }
  duration(ticks) { return duration(ticks * this.tick); }

  moment(ticks, step) { return moment(ticks * this.tick, step * this.tick, this.step * this.tick); }

  ticks(view, room) { return ticksBetween(view.begin, view.end, Math.max(2, room / 110), { least: 1 / this.tick }); }
}

// The first of the numbers below `count` that passes `test`; `count` if there is none. All numbers after it pass, too.
function firstOf(count, test) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle; else low = middle + 1;
  }
  return low;
}
// Index of the first span of a lane that ends after `t`.
const firstAfter = (lane, t) => firstOf(lane.size, (i) => lane.end[i] > t);
