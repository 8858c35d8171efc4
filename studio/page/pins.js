// Pinned plans: up to four, as cards and side by side with the plan that is shown. Uses the elements and numbers of the plan
// view (planner/report/page/shared.js).
import { copyOf, DEFAULT_BATCH, valueAt } from "./state.js";
import { nameOf } from "./answer.js";

export const MAX_PINS = 4;
const KEPT = "lynx-studio-pins"; // they outlive a reload of the page, not the window
const LETTERS = "ABCD";

// What the table compares: [words, value, how it is written, whether less is better (true), more (false), or neither (null)].
const RESULTS = [
  ["step", (p) => p.summary.stepNs, duration, true],
  ["throughput", (p) => p.summary.tokensPerSecond, (v) => count(v) + " tokens/s", false],
  ["peak memory", (p) => p.summary.peakBytes, bytes, true],
  ["memory limit", (p) => p.summary.limitBytes, (v) => (v > 0 ? bytes(v) : "not checked"), null],
  ["recomputation hidden", (p) => p.summary.hiddenNs, duration, null],
  ["recomputation exposed", (p) => p.summary.exposedNs, duration, true],
  ["layout", (p) => p.summary.layout, String, null],
  ["micro-batch", (p) => `${p.summary.microBatch} × ${p.summary.microbatches}`, String, null],
];
const OWN_NAMES = { nodes: "nodes", memoryBytes: "memory per device", linkScale: "link speed" };

function standardOf(field, choices) {
  return field.startsWith("model.")
    ? "the model's"
    : field === "train.globalBatch"
      ? String(DEFAULT_BATCH)
      : choices.fields.find((f) => f.path === field)?.default || "not set";
}

// What was asked, of all plans: the rows that any of them sets.
function questions(plans, choices) {
  const rows = [
    ["model", (p) => JSON.stringify(p.state.model), (v) => JSON.parse(v).preset ?? JSON.parse(v).name ?? "of the job"],
    ["machine", (p) => JSON.stringify(p.state.machine), (v) => JSON.parse(v).name ?? "edited"],
  ];
  for (const [field, words] of Object.entries(OWN_NAMES)) {
    const own = (p) => {
      const machine = choices.machines.find((m) => m.name === p.state.machine.name);
      return field === "nodes" ? machine?.nodes : field === "memoryBytes" ? machine?.memoryBytes : null;
    };
    const say = (p) => {
      const v = valueAt(p.state, field) ?? own(p);
      return v === null || v === undefined
        ? field === "linkScale"
          ? "1×"
          : "the machine's"
        : field === "memoryBytes"
          ? bytes(v)
          : field === "linkScale"
            ? v + "×"
            : String(v);
    };
    if (plans.some((p) => valueAt(p.state, field) !== null)) rows.push([words, say]);
  }
  for (const field of new Set(plans.flatMap((p) => Object.keys(p.state.job))))
    rows.push([field, (p) => String(p.state.job[field] ?? standardOf(field, choices))]);
  return rows.map(([words, value, say = String]) => [words, value, say, null]);
}

// "+12.3%" of a value against that of the first plan, and whether this is good.
function against(value, first, lessIsBetter) {
  if (!(first > 0) || !Number.isFinite(value) || value === first || lessIsBetter === null) return null;
  const by = value / first - 1;
  if (Math.abs(by) < 0.0005) return null;
  return make(
    "span",
    { class: "delta " + (by < 0 === lessIsBetter ? "good" : "bad") },
    (by > 0 ? "+" : "−") + (100 * Math.abs(by)).toFixed(1) + "%",
  );
}

// Whether this is a pin, and not what another version of the studio has kept.
function isPin(pin) {
  const { state, summary, bars, letter, name } = pin ?? {};
  return (
    state?.model && state.machine && state.job && summary?.layout && Array.isArray(bars) && LETTERS.includes(letter) && name
  );
}

export class Pins {
  // open(state): shows a pinned plan again; say(text): tells what was done.
  constructor(choices, open, say) {
    Object.assign(this, { choices, open, say, pins: [], now: null, allowed: false });
    try {
      this.pins = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]")
        .filter(isPin)
        .slice(0, MAX_PINS);
    } catch {
      this.pins = [];
    }
    byId("pin").addEventListener("click", () => this.#pin());
    byId("all-rows").addEventListener("change", () => this.#draw());
    byId("unpin-all").addEventListener("click", () => {
      this.pins = [];
      this.#kept();
      byId("pin").focus();
    });
  }

  // The plan that is shown now.
  show({ state, summary, data }) {
    this.now = { state: copyOf(state), summary, bars: barsOf(data) };
    this.allowed = true;
    this.#draw();
  }

  // What is asked has no plan, so none can be pinned.
  forbid() {
    this.allowed = false;
    this.#draw();
  }

  #pin() {
    if (this.now === null || this.pins.length >= MAX_PINS) return;
    const letter = [...LETTERS].find((l) => !this.pins.some((pin) => pin.letter === l));
    this.pins.push({ ...this.now, letter, name: nameOf(this.now.state, this.choices, this.now.summary) });
    this.pins.sort((a, b) => a.letter.localeCompare(b.letter));
    this.#kept();
    this.say(`Pinned as ${letter}.`);
  }

  #kept() {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(this.pins));
    } catch {
      /* a browser that keeps nothing: the pins last until a reload */
    }
    this.#draw();
  }

  #same(pin) {
    return this.now !== null && JSON.stringify(pin.state) === JSON.stringify(this.now.state);
  }

  #draw() {
    const full = this.pins.length >= MAX_PINS,
      again = this.pins.some((pin) => this.#same(pin));
    byId("pin").disabled = !this.allowed || full || again;
    setText(byId("pin"), full ? "Four are pinned" : again ? "Pinned" : "Pin this plan");
    byId("pinned").hidden = this.pins.length === 0;
    setText(byId("pinned-aside"), `${this.pins.length} of ${MAX_PINS}; differences are against ${this.pins[0]?.letter ?? ""}`);
    replaceKeeping(byId("pins"), ...this.pins.map((pin) => this.#card(pin)));
    if (this.pins.length > 0) replaceKeeping(byId("comparison"), this.#table());
  }

  #card(pin) {
    const open = make("button", { type: "button", class: "quiet", "aria-label": `Show plan ${pin.letter} again` }, "Show");
    const remove = make("button", { type: "button", class: "quiet", "aria-label": `Remove plan ${pin.letter}` }, "×");
    open.addEventListener("click", () => this.open(pin.state));
    remove.addEventListener("click", () => {
      this.pins = this.pins.filter((p) => p !== pin);
      this.#kept();
      (byId("pins").querySelector("button") ?? byId("pin")).focus();
    });
    const slowest = Math.max(...this.pins.map((p) => p.summary.stepNs));
    return make(
      "article",
      { class: "pinned-plan" + (this.#same(pin) ? " here" : ""), "aria-label": "Plan " + pin.letter },
      make(
        "div",
        { class: "pin-head" },
        make("span", { class: "letter" }, pin.letter),
        make("h3", { title: pin.name }, pin.name),
      ),
      make("div", { class: "pin-head" }, make("p", { class: "value" }, ...valueOf(duration(pin.summary.stepNs))), open, remove),
      strip(pin, slowest),
      make(
        "p",
        { class: "sub" },
        `${count(pin.summary.tokensPerSecond)} tokens/s · ${bytes(pin.summary.peakBytes)} · ${pin.summary.layout}`,
      ),
    );
  }

  #table() {
    const plans = [
      ...this.pins,
      ...(this.now !== null && !this.pins.some((pin) => this.#same(pin)) ? [{ ...this.now, letter: "now" }] : []),
    ];
    const all = byId("all-rows").checked,
      differs = (values) => values.some((v) => v !== values[0]);
    const rows = (list) =>
      list.filter(([, value, , lessIsBetter]) => all || lessIsBetter !== null || differs(plans.map(value))).map(row);
    const row = ([words, value, say, lessIsBetter]) => {
      const values = plans.map(value),
        differ = differs(values);
      return make(
        "tr",
        { class: differ ? "differ" : "same" },
        make("th", { scope: "row" }, words),
        ...values.map((v, i) =>
          make(
            "td",
            { class: v !== values[0] ? "other" : null },
            say(v),
            i > 0 ? " " : null,
            i > 0 ? against(v, values[0], lessIsBetter) : null,
          ),
        ),
      );
    };
    const head = make(
      "tr",
      {},
      make("td"),
      ...plans.map((plan) =>
        make("th", { scope: "col" }, plan.letter === "now" ? "now" : make("span", { class: "letter" }, plan.letter)),
      ),
    );
    return make(
      "table",
      { class: "compare" },
      make("caption", {}, "What differs from the first plan is marked"),
      make("thead", {}, head),
      make("tbody", {}, ...rows(questions(plans, this.choices))),
      make("tbody", {}, ...rows(RESULTS)),
    );
  }
}

// "535.5 ms" as a large number and a small unit; "1m03s" has no unit of its own.
function valueOf(text) {
  const [number, unit] = text.split(" ");
  return unit === undefined ? [number] : [number, " ", make("small", {}, unit)];
}

// Where the step of the slowest stage goes, as [kind, share] in the order of the kinds; from the spans of its compute lane.
function barsOf(data) {
  if (data === null) return []; // a plan that is too large to be drawn
  const plan = new PlanModel(data),
    stage = plan.stages[plan.fullest],
    time = new Float64Array(plan.kinds.length);
  for (const pass of stage.passes)
    pass.time.forEach((t, kind) => {
      time[kind] += t;
    });
  const sum = Math.max(
    plan.step,
    time.reduce((a, b) => a + b, 0),
  );
  return [...time]
    .map((t, kind) => [plan.kinds[kind].id, plan.kinds[kind].name, t / sum])
    .filter(([, , share]) => share > 0.0005);
}

// The plan's bar, as long as its step is against the slowest one.
function strip(pin, slowest) {
  let at = 0;
  const parts = pin.bars.map(([kind, name, share]) => {
    const part = makeSvg(
      "rect",
      { class: "k-" + kind, x: (100 * at).toFixed(3) + "%", width: (100 * share).toFixed(3) + "%", height: "100%" },
      makeSvg("title", {}, `${name} ${Math.round(100 * share)}%`),
    );
    at += share;
    return part;
  });
  const bar = makeSvg(
    "svg",
    {
      class: "bar",
      role: "img",
      "aria-label": pin.bars.map(([, name, share]) => `${name} ${Math.round(100 * share)}%`).join(", "),
    },
    ...parts,
  );
  bar.style.width = ((100 * pin.summary.stepNs) / slowest).toFixed(2) + "%";
  return make("div", { class: "strip" }, bar);
}
