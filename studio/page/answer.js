// What stands on the right: the plan, its figures, what policies and memory would bring, and what is wrong. Uses the plan view
// (planner/report/page/: mountPlan, drawFrontier and shared.js).

const FOUND = 700; // milliseconds of rest, after which screen readers are told the result

const tokens = (summary) => count(summary.tokensPerSecond) + " tokens/s";
const memory = (summary) =>
  summary.limitBytes > 0 ? `${bytes(summary.peakBytes)} of ${bytes(summary.limitBytes)}` : bytes(summary.peakBytes);

// The result in one sentence.
export function sentence(what, summary) {
  const made = summary.hiddenNs + summary.exposedNs;
  const recomputed =
    made > 0
      ? `${Math.round((100 * summary.hiddenNs) / made)}% of recomputation is hidden`
      : "nothing is recomputed in a stage's time";
  const figures = `a step takes ${duration(summary.stepNs)}, ${tokens(summary)}; ${memory(summary)} of memory`;
  return `${what}: ${figures}; ${recomputed}; layout ${summary.layout}.`;
}

// "gpt-22b on NVIDIA H100 ×4": for sentences, pins and the window's title.
export function nameOf(state, choices, summary) {
  const model = state.model.preset ?? state.model.name ?? "the model of the job";
  const machine = choices.machines.find((m) => m.name === state.machine.name);
  const where = machine?.name ?? /^name:\s*(\S+)/m.exec(state.machine.text ?? "")?.[1] ?? "an edited machine";
  const nodes = summary?.nodes ?? (state.nodes || machine?.nodes);
  return `${model} on ${where}${nodes > 0 ? ", " + plural(nodes, "node") : ""}`;
}

export class Answer {
  constructor(choices, apply) {
    Object.assign(this, { choices, apply, view: null, timer: 0, shown: null });
  }

  // A plan: { state, summary, parts, data }.
  show(answer) {
    if (this.view === null) {
      byId("plan-title").closest("section").before(byId("more")); // above the tables, which are long
      this.view = mountPlan(byId("view"));
    }
    const drawn = answer.data !== null;
    byId("view").hidden = byId("not-drawn").hidden = false; // before it is drawn: what is hidden has no width
    if (drawn) this.view.show(answer.data, answer.parts);
    byId("view").hidden = !drawn;
    byId("not-drawn").hidden = drawn;
    if (!drawn)
      setText(
        byId("not-drawn"),
        "The programs of this plan have too many actions to be drawn here. Its figures: " +
          sentence("this plan", answer.summary),
      );
    this.shown = answer;
    byId("trouble").hidden = true;
    byId("more").hidden = false;
    document.body.classList.remove("troubled");
    this.#now(answer.summary);
    const what = nameOf(answer.state, this.choices, answer.summary);
    document.title = `${duration(answer.summary.stepNs)} · ${what} · Lynx studio`;
    setText(
      byId("subtitle"),
      what + (answer.summary.layoutKept ? " · in the layout of before; all layouts are searched when you let go" : ""),
    );
    if (!answer.summary.layoutKept) this.#say(sentence(what, answer.summary));
  }

  #now(summary) {
    byId("now").hidden = false;
    const pairs = [
      ["step", duration(summary.stepNs)],
      ["throughput", tokens(summary)],
      ["peak", memory(summary)],
      ["layout", summary.layout],
    ];
    byId("now-figures").replaceChildren(
      ...pairs.map(([name, value]) => make("div", { class: "now-" + name }, make("dt", {}, name), make("dd", {}, value))),
    );
  }

  #say(text) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => setText(byId("said"), text), FOUND);
  }

  // To screen readers, at once. A sentence about an earlier plan that waits to be said is dropped.
  tell(text) {
    clearTimeout(this.timer);
    setText(byId("said"), text);
  }

  // What keeps the planner from a plan: an error that has no place in the form, or a job that cannot fit.
  trouble(title, text, action) {
    clearTimeout(this.timer);
    const box = byId("trouble"),
      parts = [make("h2", {}, title), make("p", {}, text)];
    if (action !== undefined) {
      const button = make("button", { type: "button", class: "main", id: "apply" }, action.text);
      button.addEventListener("click", () => this.apply(action.set));
      parts.push(make("p", {}, button));
    }
    if (this.shown !== null)
      parts.push(
        make(
          "p",
          { class: "facts" },
          `Below stands the last plan, of ${nameOf(this.shown.state, this.choices, this.shown.summary)}.`,
        ),
      );
    box.replaceChildren(...parts);
    box.hidden = false;
    document.body.classList.add("troubled");
    document.title = title + " · Lynx studio";
  }

  // `searching`: the smallest change that fits is still being looked for.
  infeasible({ reason, suggestion, set }, searching) {
    const some = set !== undefined && Object.keys(set).length > 0;
    this.trouble("It does not fit", reason, some ? { text: "Apply the smallest change: " + suggestion, set } : undefined);
    if (!searching) return;
    const bar = make("progress", { "aria-label": "Looking for the smallest change" });
    byId("trouble").append(make("p", { class: "more-note" }, bar, "looks for the smallest change that fits …"));
  }

  // An error that stands beside its field: said to screen readers here, as the field may be far away.
  errorBeside(text) {
    this.tell("Not planned: " + text);
    document.body.classList.add("troubled");
    byId("trouble").hidden = true;
  }

  waiting(is) {
    byId("progress").hidden = !is;
    document.body.classList.toggle("waiting", is);
    byId("answer").setAttribute("aria-busy", String(is));
    if (is) byId("progress").removeAttribute("value");
  }

  // ---- Policies and the frontier ----
  // `is`: what stands there is of another plan, and is being worked out again.
  moreWaiting(is) {
    byId("more").classList.toggle("old", is);
    byId("more").setAttribute("aria-busy", String(is));
    byId("more-note").hidden = !is;
    const bar = make("progress", { "aria-label": "Policies and what memory buys" });
    if (is) byId("more-note").replaceChildren(bar, "plans every policy and several memory limits …");
  }

  moreFailed(text) {
    byId("more-note").replaceChildren("Policies and limits could not be planned: " + text);
    byId("more-note").hidden = false;
    byId("more").setAttribute("aria-busy", "false");
  }

  more({ policies, frontier, limitBytes, why }) {
    byId("more-parts").hidden = false;
    setText(byId("why"), why);
    const points = policies.filter((p) => p.stepNs > 0);
    drawFrontier(byId("frontier"), { points, frontier, limitBytes });
    const row = (p) =>
      make(
        "tr",
        { class: p.chosen ? "chosen" : null },
        make("th", { scope: "row" }, p.name, p.chosen ? make("span", { class: "away" }, " (chosen)") : null),
        make("td", { class: "r" }, p.stepNs > 0 ? duration(p.stepNs) : "–"),
        make("td", { class: "r" }, p.stepNs > 0 ? bytes(p.peakBytes) : "–"),
        make(
          "td",
          { class: p.fits || p.stepNs > 0 ? "muted note-cell" : "lacks note-cell" },
          p.note || (p.fits ? "" : "does not fit"),
        ),
      );
    const heads = [["policy"], ["step", "r"], ["memory", "r"], [""]].map(([text, align]) =>
      text === "" ? make("td") : make("th", { scope: "col", class: align }, text),
    );
    replaceKeeping(
      byId("policies"),
      make(
        "table",
        {},
        make("caption", {}, "Every recomputation policy in this layout"),
        make("thead", {}, make("tr", {}, ...heads)),
        make("tbody", {}, ...policies.map(row)),
      ),
    );
  }

  noMore() {
    byId("more").hidden = true;
  }
}
