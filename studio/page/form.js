// The form: model, machine, sliders, layout and fields. It shows a state and tells of changes; it keeps no state of its own but
// texts that are being typed. Uses the elements and numbers of the plan view (planner/report/page/shared.js).
import { control, FieldRow, Slider, SLIDERS } from "./controls.js";
import { startFinder } from "./finder.js";
import { DEFAULT_BATCH, setAt } from "./state.js";

const OWN_CONFIG = "\u0000config",
  OWN_FIELDS = "\u0000fields",
  OWN_TEXT = "\u0000text"; // no model and no machine has such a name
const MAX_CONFIG_BYTES = 512 * 1024;
const TYPING = 350; // milliseconds without a key, after which a text that is typed is planned
// Fields of the model that say how it is trained, not which model it is: they stay when another model is chosen.
const HOW_TRAINED = [
  "model.seq",
  "model.dtype",
  "model.attention",
  "model.matmulType",
  "model.gradientDtype",
  "model.dropoutMasks",
  "model.dropout",
];
const LAYOUT = [
  ["tp", "tensor"],
  ["pp", "pipeline"],
  ["dp", "data"],
  ["cp", "context"],
  ["ep", "expert"],
];
const PLACED = new Set(["recompute", ...SLIDERS.map((slider) => slider.field), ...LAYOUT.map(([name]) => "parallel." + name)]);

const billions = (parameters) =>
  parameters >= 1e9 ? Number((parameters / 1e9).toPrecision(3)) + "B" : Number((parameters / 1e6).toPrecision(3)) + "M";
// tp8 pp1 dp1 as { tp: 8, pp: 1, dp: 1 }.
export const sizesOf = (layout) =>
  Object.fromEntries([...(layout ?? "").matchAll(/\b(tp|pp|dp|cp|ep)(\d+)\b/g)].map(([, name, size]) => [name, Number(size)]));

// A field that says which model it is.
const isOfModel = (field) => field.startsWith("model.") && !HOW_TRAINED.includes(field);

export class Form {
  // `choices`: the answer of api/choices. `change(edit, moving)`: people have changed something; edit(state) does the same to a
  // state. tell(text): says it to screen readers.
  constructor(choices, change, tell) {
    Object.assign(this, { choices, rows: new Map(), timer: 0, textShown: null });
    this.refused = new Map(); // field -> the error of a text that people have typed there, and that the state cannot hold
    this.told = null; // the error of the newest answer, if it belongs beside a field: the arguments of error()
    this.on = {
      change,
      wrong: (field, text) => {
        this.refused.set(field, text);
        this.#put(this.#hostOf(field), text);
        tell(text);
      },
      right: (field) => this.#right(field),
      isRefused: (field) => this.refused.has(field),
      remove: (field) => this.#remove(field),
    };
    this.sliders = SLIDERS.map((spec) => new Slider(spec, this.on));
    byId("sliders").append(...this.sliders.map((slider) => slider.element));
    byId("form").addEventListener("submit", (event) => event.preventDefault());
    this.#startModel();
    this.#startMachine();
    this.#startRest();
  }

  #edit(edit) {
    this.on.change(edit, false);
  }

  // ---- The model ----
  #startModel() {
    const families = new Map();
    for (const model of this.choices.models) {
      const family = model.experts > 0 ? "Mixtures of experts" : model.family === "gpt" ? "GPT" : "Llama";
      if (!families.has(family)) families.set(family, make("optgroup", { label: family }));
      families.get(family).append(make("option", { value: model.name }, `${model.name} · ${billions(model.parameters)}`));
    }
    byId("model").append(...families.values());
    byId("model").addEventListener("change", ({ target }) =>
      this.#edit((state) => {
        for (const field of Object.keys(state.job)) if (isOfModel(field)) delete state.job[field];
        state.model = { preset: target.value };
      }),
    );
    const file = byId("config-file"),
      drop = byId("drop");
    drop.addEventListener("click", () => file.click());
    file.addEventListener("change", () => {
      if (file.files.length > 0) this.#takeConfig(file.files[0]);
      file.value = "";
    });
    for (const [name, over] of [
      ["dragenter", true],
      ["dragover", true],
      ["dragleave", false],
      ["drop", false],
    ]) {
      // Anywhere on the page, as a file beside the form would take the page's place. Texts are dropped as elsewhere.
      document.addEventListener(name, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        drop.classList.toggle("over", over);
        if (name === "drop" && event.dataTransfer.files.length > 0) this.#takeConfig(event.dataTransfer.files[0]);
      });
    }
  }

  async #takeConfig(file) {
    if (file.size > MAX_CONFIG_BYTES)
      return this.on.wrong(
        "model",
        `${file.name} has ${bytes(file.size)}; a config.json has a few KiB. Drop the model's config.json, not its weights.`,
      );
    const config = await file.text();
    this.#edit((state) => {
      for (const field of Object.keys(state.job)) if (isOfModel(field)) delete state.job[field];
      state.model = { config, name: file.name };
    });
  }

  #showModel(state) {
    const list = byId("model"),
      { preset, config, name } = state.model;
    const value = preset ?? (config !== undefined ? OWN_CONFIG : OWN_FIELDS);
    for (const option of [...list.options]) if (option.dataset.own !== undefined && option.value !== value) option.remove();
    if (![...list.options].some((option) => option.value === value)) {
      const option = new Option(config !== undefined ? name || "config.json" : (preset ?? "as in the job file"), value);
      option.dataset.own = "";
      list.add(option, 0);
    }
    list.value = value;
    const model = this.modelOf(state),
      facts = [];
    if (model !== undefined)
      facts.push(billions(model.parameters) + " parameters", model.layers + " layers", "hidden " + grouped(model.hidden));
    if (model?.experts > 0) facts.push(model.experts + " experts");
    if (Object.keys(state.job).some(isOfModel)) facts.push("before the changes below");
    setText(byId("model-facts"), config !== undefined ? "read from the file that you gave" : facts.join(" · "));
  }

  modelOf(state) {
    return this.choices.models.find((model) => model.name === state.model.preset);
  }
  machineOf(state) {
    return this.choices.machines.find((machine) => machine.name === (state.machine.name ?? this.base));
  }

  // ---- The machine ----
  #startMachine() {
    byId("machine").append(
      ...this.choices.machines.map(({ name, device }) => make("option", { value: name }, `${name} · ${device}`)),
    );
    byId("machine").addEventListener("change", ({ target }) => {
      if (target.value === OWN_TEXT) return;
      clearTimeout(this.timer);
      this.base = target.value;
      this.#edit((state) => {
        state.machine = { name: target.value };
        state.memoryBytes = 0;
      });
    });
    const text = byId("machine-text");
    text.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        this.textShown = text.value;
        this.#edit((state) => {
          state.machine = { text: text.value };
        });
      }, TYPING);
    });
    byId("machine-back").addEventListener("click", () => {
      clearTimeout(this.timer);
      this.#edit((state) => {
        state.machine = { name: this.base };
      });
      text.focus();
    });
  }

  #showMachine(state, summary) {
    const list = byId("machine"),
      text = byId("machine-text"),
      own = state.machine.text !== undefined;
    if (!own) this.base = state.machine.name;
    this.base ??= this.choices.machines[0].name;
    let option = [...list.options].find((o) => o.value === OWN_TEXT);
    if (own && option === undefined) list.add((option = new Option("", OWN_TEXT)), 0);
    if (own) option.text = /^name:\s*(\S+)/m.exec(state.machine.text)?.[1].concat(", edited") ?? "edited";
    else option?.remove();
    list.value = own ? OWN_TEXT : state.machine.name;
    const machine = this.machineOf(state),
      wanted = own ? state.machine.text : (machine?.text ?? "");
    if (this.textShown !== wanted) {
      text.value = wanted;
      this.textShown = wanted;
    }
    byId("machine-back").hidden = !own;
    if (own) byId("machine-edit").open = true;
    byId("machine-facts").title = own ? "" : (machine?.title ?? "");
    const nodes = plural(state.nodes || (machine?.nodes ?? 0), "node");
    const devices = `${plural(machine?.devicesPerNode ?? 0, "device")} · ${bytes(machine?.memoryBytes ?? 0)} each`;
    setText(byId("machine-facts"), own ? "as you have written it" : `${nodes} of ${devices}`);
  }

  // ---- Layout, policy and the other fields ----
  #startRest() {
    this.sizes = LAYOUT.map(([name, meaning]) => {
      const field = "parallel." + name,
        input = make("input", {
          type: "text",
          inputmode: "numeric",
          id: "size-" + name,
          placeholder: "auto",
          spellcheck: "false",
          "aria-describedby": "error-" + field,
          "aria-label": `${meaning}-parallel size; empty: the planner chooses`,
        });
      const size = { name, field, input, shown: "", dirty: false };
      input.addEventListener("input", () => {
        size.dirty = true; // an answer that arrives now must not take away what is being typed
      });
      input.addEventListener("blur", () => {
        size.dirty = false;
      });
      input.addEventListener("change", () => {
        const text = input.value.trim(),
          value = text === "auto" ? "" : text;
        size.dirty = false;
        if (value === size.shown) {
          input.value = value;
          return this.on.right(field);
        }
        if (value !== "" && !/^[1-9]\d{0,5}$/.test(value))
          return this.on.wrong(field, `'${value}' is not a whole number from 1 on; leave it empty, and the planner chooses.`);
        this.#edit((state) => setAt(state, field, value === "" ? null : Number(value)));
      });
      byId("layout-fields").append(
        control(field, "size", make("label", { for: input.id, title: meaning + "-parallel" }, name), input),
      );
      return size;
    });
    byId("recompute").append(...this.choices.policies.map((policy) => make("option", { value: policy }, policy)));
    byId("recompute").addEventListener("change", ({ target }) =>
      this.#edit((state) => {
        setAt(state, "recompute", target.value === "auto" ? null : target.value);
        // Another policy refuses what is of this one alone.
        if (target.value !== "selective") setAt(state, "recomputeOptions.modules", null);
        if (target.value !== "uniform" && target.value !== "block") setAt(state, "recomputeOptions.layers", null);
      }),
    );
    startFinder(
      byId("find"),
      byId("found"),
      () => this.choices.fields ?? [],
      (field) => {
        const placed = document.querySelector(`[data-field="${field.path}"]`);
        if (placed === null) this.#add(field.path);
        document.querySelector(`[data-field="${field.path}"]`).querySelector("input, select").focus();
      },
    );
    byId("reset").addEventListener("click", () =>
      this.#edit((state) => Object.assign(state, structuredClone(this.choices.state))),
    );
  }

  #add(field) {
    const row = new FieldRow(
      field,
      this.choices.fields?.find((f) => f.path === field),
      this.on,
    );
    this.rows.set(field, row);
    byId("fields").append(row.element);
    return row;
  }

  #remove(field) {
    const rows = [...this.rows.keys()],
      at = rows.indexOf(field);
    this.rows.get(field).element.remove();
    this.rows.delete(field);
    (this.rows.get(rows[at + 1] ?? rows[at - 1])?.input ?? byId("find")).focus();
    this.#edit((state) => setAt(state, field, null));
  }

  #showRest(state, summary) {
    const sizes = sizesOf(summary?.layout);
    for (const size of this.sizes) {
      const { name, field, input } = size,
        value = state.job[field];
      input.placeholder = sizes[name] !== undefined ? String(sizes[name]) : "auto";
      size.shown = value === undefined || value === "auto" ? "" : String(value);
      if (size.dirty || this.refused.has(field)) continue;
      input.value = size.shown;
      input.classList.toggle("set", input.value !== "");
    }
    byId("recompute").value = state.job.recompute ?? "auto";
    for (const field of Object.keys(state.job)) if (!PLACED.has(field) && !this.rows.has(field)) this.#add(field);
    for (const row of this.rows.values()) row.show(state);
  }

  // ---- All of it ----
  show(state, summary) {
    this.#showModel(state);
    this.#showMachine(state, summary);
    const batch = state.job["train.globalBatch"] ?? batchOf(summary);
    const edited = state.machine.text !== undefined;
    const context = { model: this.modelOf(state), machine: this.machineOf(state), edited, summary, batch };
    for (const slider of this.sliders) slider.show(state, context);
    this.#showRest(state, summary);
  }

  // An answer has come: the errors of earlier ones are over. Those of texts that are refused stay, as the texts do.
  clearErrors() {
    this.told = null;
    for (const host of document.querySelectorAll("#form [data-field]")) {
      if (!this.refused.has(host.dataset.field)) clearError(host);
    }
  }

  // People have changed something: texts that were refused give way to what the state holds.
  forgetErrors() {
    this.refused.clear();
    this.clearErrors();
  }

  // People have put back what was shown. The plan of it may still have an error there, which the refused text has hidden.
  #right(field) {
    if (!this.refused.delete(field)) return;
    const host = this.#hostOf(field);
    clearError(host);
    if (this.told !== null && this.#hostOfError(...this.told) === host) this.error(...this.told);
  }

  // If people have not set the field that an error is about, but another one that its text names, the error stands there: a
  // size that does not divide the model's heads is changed there.
  #hostOfError({ field, text }, state) {
    const isSet = (path) => state?.job[path] !== undefined;
    const named = [...text.matchAll(/\b[a-z]\w*(?:\.\w+)+\b/g)].map(([path]) => path).find(isSet);
    return this.#hostOf(isSet(field) || field === "machine" ? field : (named ?? field));
  }

  // Shows an error beside its field. False if the form has no place for it: it has no such field, or what stands there is the
  // error of a refused text, which is of another field.
  error({ field, text, line }, state) {
    const host = this.#hostOfError({ field, text }, state);
    const refused = this.refused.has(host?.dataset.field);
    if (host === null || (refused && host.dataset.field !== field)) return false;
    this.told = [{ field, text, line }, state];
    if (refused) return true; // what is typed there is newer than the answer
    if (field !== "machine" || !(line > 0)) {
      this.#put(host, text);
      return true;
    }
    const go = make("button", { type: "button", class: "quiet" }, "Go to line " + line);
    go.addEventListener("click", () => goToLine(byId("machine-text"), line));
    byId("machine-edit").open = true;
    this.#put(host, text, byId("machine-text"), " ", go);
    return true;
  }

  #put(host, text, input = host.querySelector("input:not([hidden]), select"), ...more) {
    const place = host.querySelector(".error");
    place.replaceChildren(text, ...more);
    place.hidden = false;
    input?.setAttribute("aria-invalid", "true");
  }

  #hostOf(field) {
    if (!field) return null;
    const host = document.querySelector(`#form [data-field="${CSS.escape(field)}"]`);
    if (host !== null) return host;
    if (field === "model" || field.startsWith("model.")) return document.querySelector('#form [data-field="model"]');
    if (!(this.choices.fields ?? []).some((f) => f.path === field)) return null;
    return this.#add(field).element;
  }
}

// Takes away the error of a control.
function clearError(host) {
  const place = host.querySelector(".error");
  place.hidden = true;
  place.replaceChildren();
  for (const element of host.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
}

// Samples of a step, which the answer says only by its parts.
function batchOf(summary) {
  return summary === null ? DEFAULT_BATCH : summary.microBatch * summary.microbatches * (sizesOf(summary.layout).dp ?? 1);
}

function goToLine(text, line) {
  const lines = text.value.split("\n"),
    begin = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.focus();
  text.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
  text.scrollTop = Math.max(0, (line - 4) * (parseFloat(getComputedStyle(text).lineHeight) || 18));
}
