// The controls of the form: a slider beside a number that can be typed, and a row for one field of the job file. Uses the
// elements and numbers of the plan view (planner/report/page/shared.js).
import { setAt, typed, valueAt } from "./state.js";

const GIB = 2 ** 30;
const nearest = (values, value) =>
  values.reduce((best, v, i) => (Math.abs(Math.log(v / value)) < Math.abs(Math.log(values[best] / value)) ? i : best), 0);
const upTo = (values, limit) => values.filter((v) => v <= limit);
const powersAndHalves = (low, high) => {
  const values = [];
  for (let v = low; v <= high; v *= 2) values.push(v, v * 1.5);
  return upTo(values, high);
};
function divisorsOf(number) {
  const values = [];
  for (let i = 1; i <= Math.min(number, 512); ++i) if (number % i === 0) values.push(i);
  return values;
}
const range = (low, high, step) => Array.from({ length: Math.floor((high - low) / step + 1e-9) + 1 }, (_, i) => low + i * step);
const rate = (bytesPerSecond) =>
  bytesPerSecond >= 1e9
    ? Number((bytesPerSecond / 1e9).toPrecision(3)) + " GB/s"
    : Number((bytesPerSecond / 1e6).toPrecision(3)) + " MB/s";

// What a slider moves. `values`: its stops, rising; `own`: where it stands while the state has no value of its own. Both are
// asked with the context: { model, machine, summary, batch }. Numbers that are typed need not be stops.
export const SLIDERS = [
  {
    field: "memoryBytes",
    ofMachine: true,
    label: "Memory per device",
    unit: "GiB",
    scale: GIB,
    least: 0.1,
    most: 1e5,
    integer: false,
    own: ({ machine }) => machine?.memoryBytes ?? 80 * GIB,
    ownWord: "the machine's own",
    values: ({ machine }) => {
      const own = (machine?.memoryBytes ?? 80 * GIB) / GIB,
        step = own > 160 ? 4 : own > 32 ? 2 : 1;
      return range(step * 2, own * 2, step).map((v) => v * GIB);
    },
  },
  {
    field: "model.seq",
    label: "Sequence length",
    unit: "tokens",
    scale: 1,
    least: 1,
    most: 1e7,
    integer: true,
    own: ({ model, summary }) => model?.seq ?? summary?.seq ?? 2048,
    ownWord: "the model's own",
    values: () => powersAndHalves(512, 131072),
  },
  {
    field: "train.globalBatch",
    label: "Global batch",
    unit: "samples",
    scale: 1,
    least: 1,
    most: 1e6,
    integer: true,
    own: ({ batch }) => batch,
    ownWord: "",
    values: () => powersAndHalves(1, 4096).filter(Number.isInteger),
  },
  {
    field: "train.microBatch",
    label: "Micro-batch",
    unit: "samples",
    scale: 1,
    least: 1,
    most: 1e6,
    integer: true,
    auto: true,
    own: ({ summary }) => summary?.microBatch ?? 1,
    ownWord: "chosen by the planner",
    values: ({ batch }) => upTo(divisorsOf(batch), 64),
  },
  {
    field: "nodes",
    ofMachine: true,
    label: "Nodes",
    unit: "nodes",
    scale: 1,
    least: 1,
    most: 1e5,
    integer: true,
    own: ({ machine }) => machine?.nodes ?? 1,
    ownWord: "the machine's own",
    values: () => [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128],
  },
  {
    field: "linkScale",
    label: "Link speed",
    unit: "×",
    scale: 1,
    least: 0.001,
    most: 1000,
    integer: false,
    own: () => 1,
    ownWord: "the machine's own",
    values: () => [
      0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10,
    ],
    note: ({ machine }, value) =>
      "between nodes" +
      (machine?.betweenNodesBytesPerSecond > 0 ? ": " + rate(machine.betweenNodesBytesPerSecond * value) : ""),
  },
];

// A part of the form that belongs to one field, with a place for its error.
export function control(field, className, ...children) {
  return make(
    "div",
    { class: "control " + className, "data-field": field },
    ...children,
    make("p", { class: "error", id: "error-" + field, hidden: true }),
  );
}

// on.change(edit, moving): edit(state) changes the state; `moving` while the slider is held. on.wrong(field, text): the state
// cannot hold what is typed, which stays until people change something; on.isRefused(field) tells whether it still stays.
// on.right(field): people have put back what was shown.
export class Slider {
  constructor(spec, on) {
    const id = "slide-" + spec.field.replace(".", "-");
    Object.assign(this, { spec, on, stops: [1], context: {} });
    this.range = make("input", { type: "range", id, min: "0", step: "1" });
    this.number = make("input", {
      type: "text",
      inputmode: spec.integer ? "numeric" : "decimal",
      id: id + "-number",
      "aria-label": spec.label + (spec.unit ? ", " + (spec.unit === "×" ? "times" : spec.unit) : "") + ", typed",
      "aria-describedby": "error-" + spec.field,
      spellcheck: "false",
    });
    this.note = make("span", { class: "facts" });
    this.own = make("button", { type: "button", class: "own", hidden: true });
    this.element = control(
      spec.field,
      "slider",
      make("label", { for: id }, spec.label),
      make("span", { class: "typed" }, this.number, spec.unit ? make("span", { class: "unit" }, spec.unit) : null),
      this.range,
      make("span", { class: "under-slider" }, this.note, this.own),
    );
    this.element.classList.toggle("with-auto", Boolean(spec.auto));
    this.range.addEventListener("input", () => this.#moved(true));
    this.range.addEventListener("change", () => this.#moved(false));
    this.number.addEventListener("input", () => {
      this.dirty = true; // an answer that arrives now must not take away what is being typed
    });
    this.number.addEventListener("blur", () => {
      this.dirty = false;
    });
    this.number.addEventListener("change", () => this.#typed());
    this.number.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.#typed();
      }
    });
    this.own.addEventListener("click", () => {
      this.#set(null, false);
      this.range.focus();
    });
  }

  #set(value, moving) {
    this.on.change((state) => setAt(state, this.spec.field, value), moving);
  }

  #moved(moving) {
    const at = Number(this.range.value),
      { spec } = this;
    if (spec.auto && at === 0) return this.#set(null, moving);
    const value = this.stops[at - (spec.auto ? 1 : 0)],
      own = spec.own(this.context);
    this.#set(!spec.auto && spec.ownWord && value === own && !this.context.edited ? null : value, moving);
  }

  #typed() {
    const { spec } = this,
      text = this.number.value.trim();
    this.dirty = false;
    if (text === this.shown) return this.on.right(spec.field);
    if (text.includes(","))
      return this.on.wrong(spec.field, `'${text}' has a comma: write 1024 for thousands, and a point before decimals`);
    if (text === "" || text === "auto") return this.#set(null, false);
    const value = Number(text);
    if (!(value >= spec.least && value <= spec.most) || (spec.integer && !Number.isInteger(value))) {
      const kind = spec.integer ? "a whole number" : "a number";
      const own = spec.auto ? "and the planner chooses" : `for ${spec.ownWord}`;
      const advice = spec.ownWord ? `; leave it empty, ${own}` : "";
      return this.on.wrong(spec.field, `'${text}' is not ${kind} from ${spec.least} to ${spec.most}${advice}`);
    }
    this.#set(spec.scale > 1 ? Math.round(value * spec.scale) : value, false);
  }

  show(state, context) {
    const { spec } = this,
      set = valueAt(state, spec.field),
      own = spec.own(context),
      value = typeof set === "number" ? set : own;
    this.context = context;
    this.stops = spec.values(context);
    if (!spec.auto && !this.stops.includes(own) && spec.ownWord) this.stops = [...this.stops, own].sort((a, b) => a - b);
    const extra = spec.auto ? 1 : 0,
      last = this.stops.length - 1 + extra,
      at = spec.auto && set === null ? 0 : nearest(this.stops, value) + extra;
    const place = (i) => (last > 0 ? (100 * i) / last : 0).toFixed(2) + "%";
    const words = this.#words(value);
    this.range.max = String(last);
    this.range.value = String(at);
    this.range.setAttribute("aria-valuetext", set === null && spec.auto ? `chosen by the planner: ${words}` : words);
    this.range.style.setProperty("--at", place(at));
    this.range.style.setProperty("--own", place(spec.auto ? 0 : nearest(this.stops, own)));
    // True if the value comes from a description of the machine that somebody has edited. The page does not read that text.
    const unknown = set === null && context.edited && spec.ofMachine;
    this.shown = unknown || (spec.auto && set === null) ? "" : this.#numeral(value);
    if (!this.dirty && !this.on.isRefused(spec.field)) this.number.value = this.shown;
    this.number.placeholder = spec.auto ? "auto" : "";
    const note = spec.note?.(context, value);
    if (unknown) setText(this.note, "as the description says");
    else if (set !== null) setText(this.note, note ?? "");
    else setText(this.note, spec.auto ? `auto: ${words}` : [note, spec.ownWord].filter(Boolean).join(" · "));
    this.own.hidden = set === null || !spec.ownWord;
    const standard = spec.auto ? "auto" : context.edited && spec.ofMachine ? "the description's" : this.#words(own);
    setText(this.own, "back to " + standard);
  }

  #numeral(value) {
    return String(Number((value / this.spec.scale).toPrecision(this.spec.integer ? 15 : 5)));
  }
  #words(value) {
    return this.spec.unit === "×"
      ? this.#numeral(value) + "×"
      : grouped(Number(this.#numeral(value))) +
          (this.spec.unit && this.spec.field === "memoryBytes" ? " " + this.spec.unit : "");
  }
}

// One field of the job file that people have chosen from all of them.
export class FieldRow {
  constructor(field, description, on) {
    const id = "field-" + field,
      words = description?.words ?? [];
    // The table's defaults are those of a job without a preset; a model brings its own.
    const standard = field.startsWith("model.") ? "as the model has it" : (description?.default ?? "");
    const values =
      description?.kind === "boolean"
        ? [...new Set([...words.filter((word) => word === "auto"), "true", "false"])]
        : description?.kind === "text"
          ? words
          : [];
    Object.assign(this, { field });
    this.input =
      values.length > 0
        ? make(
            "select",
            { id },
            make(
              "option",
              { value: "" },
              standard === "" ? "not set" : standard.startsWith("as ") ? standard : standard + " (default)",
            ),
            ...values.filter((value) => value !== standard).map((value) => make("option", { value }, value)),
          )
        : make("input", { id, type: "text", spellcheck: "false", placeholder: standard });
    this.input.setAttribute("aria-describedby", "error-" + field);
    const remove = make("button", { type: "button", class: "quiet remove", "aria-label": "Remove " + field }, "×");
    this.element = control(
      field,
      "row",
      make("label", { for: id }, field),
      this.input,
      remove,
      description?.meaning ? make("p", { class: "facts" }, description.meaning) : null,
    );
    this.input.addEventListener("change", () =>
      on.change(
        (state) => setAt(state, field, this.input.value === "" ? null : typed(this.input.value, description?.kind)),
        false,
      ),
    );
    remove.addEventListener("click", () => on.remove(field));
  }

  show(state) {
    const value = state.job[this.field],
      text = value === undefined ? "" : String(value),
      select = this.input.tagName === "SELECT";
    if (select && ![...this.input.options].some((option) => option.value === text)) this.input.add(new Option(text, text));
    if (select || document.activeElement !== this.input) this.input.value = text;
  }
}
