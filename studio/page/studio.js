// Begins the studio: asks what there is to choose from, then plans what the form or a link says, again with every change.
// The state is kept here and nowhere else; the address's fragment follows it.
import { Answer } from "./answer.js";
import { Asker } from "./asker.js";
import { Copies } from "./copies.js";
import { Form } from "./form.js";
import { Pins } from "./pins.js";
import { copyOf, decoded, EMPTY, encoded, setAt } from "./state.js";

const REST = 350; // milliseconds without a change, after which policies and the frontier are asked
const QUICK = 100e6; // nanoseconds: a search that takes longer is replaced, while a slider is held, by one in the same layout
const BUSY_TRIES = 60; // seconds in which a server with too many questions is asked again
const TOAST = 4000; // milliseconds that a short message stays

let state,
  summary = null,
  slow = false,
  waitingFrame = 0,
  restTimer = 0,
  toastTimer = 0,
  writtenLink = "";
let form, answer, pins, planAsker, moreAsker;
let live = null; // the machine that is the server's cluster, if a server has served the page
let lacking = null; // why what is asked does not fit, while the smallest change that fits is looked for

function say(text) {
  clearTimeout(toastTimer);
  setText(byId("toast"), text);
  byId("toast").hidden = false;
  toastTimer = setTimeout(() => {
    byId("toast").hidden = true;
  }, TOAST);
}

// If only this server knows the machine, which may change, a link contains the machine's text.
function linkNow() {
  const held = live !== null && state.machine.name === live.name ? { ...state, machine: { text: live.text } } : state;
  return location.origin + location.pathname + "#s=" + encoded(held);
}
function writeLink() {
  writtenLink = "#s=" + encoded(state);
  try {
    history.replaceState(null, "", writtenLink);
  } catch {
    /* browsers refuse it for a while after very many changes; the next change writes the link */
  }
}

// Asks for a plan. However many changes come, it asks at most once in each frame of the screen.
function plan(moving) {
  clearTimeout(restTimer);
  moreAsker.stop();
  answer.moreWaiting(true);
  const layout = moving && slow ? "same" : "any";
  cancelAnimationFrame(waitingFrame);
  waitingFrame = requestAnimationFrame(() => planAsker.ask({ state, layout }));
}

function change(edit, moving = false) {
  const next = copyOf(state);
  edit(next);
  state = next;
  form.forgetErrors();
  form.show(state, summary);
  plan(moving);
  if (!moving) writeLink();
}

// Something may have been changed since the question was asked. Then the answer to the newer question follows, and this one
// begins nothing.
function onPlan(got, { state: asked }) {
  const newest = asked === state;
  if (got.error !== undefined) {
    if (!newest) return;
    form.clearErrors();
    if (form.error(got.error, asked)) answer.errorBeside(got.error.text);
    else answer.trouble("This cannot be planned", got.error.text);
    return noMore();
  }
  if (got.infeasible !== undefined) {
    form.clearErrors();
    // The change that would do is one of what was asked, not of what the form says now.
    if (!newest) return answer.infeasible({ reason: got.infeasible.reason }, false);
    noMore();
    const searching = got.infeasible.suggestion === "";
    lacking = searching ? got.infeasible : null;
    answer.infeasible(got.infeasible, searching);
    if (searching) moreAsker.ask({ state });
    return;
  }
  form.clearErrors();
  lacking = null;
  summary = got.summary;
  if (!summary.layoutKept) slow = summary.planningNs > QUICK;
  form.show(state, summary);
  answer.show({ ...got, state: asked });
  pins.show({ ...got, state: asked });
  byId("copy").disabled = false;
  if (!newest) return;
  restTimer = setTimeout(() => {
    if (summary.layoutKept) return planAsker.ask({ state, layout: "any" });
    moreAsker.ask({ state });
  }, REST);
}

function onMore(got) {
  if (got.policies !== undefined) {
    answer.more(got);
    answer.moreWaiting(false);
  } else if (lacking !== null) {
    answer.infeasible(got.infeasible ?? lacking, false);
  } else {
    answer.moreFailed(got.error?.text ?? got.infeasible?.reason ?? "there is no answer");
  }
}

function noMore() {
  pins.forbid();
  byId("copy").disabled = false;
  answer.noMore();
}

function onFailed(text) {
  if (text !== null) answer.trouble("No answer", text);
}

// What people have opened: a link, or another one in the same window.
function follow() {
  if (location.hash === writtenLink) return;
  let linked = null;
  try {
    linked = decoded(location.hash);
  } catch (error) {
    say(error.message);
  }
  if (linked === null) {
    if (writtenLink !== "") writeLink(); // the skip link, for one, has replaced it
    return;
  }
  state = linked;
  writeLink();
  form.forgetErrors();
  form.show(state, summary);
  plan(false);
}

async function start() {
  startTheme(byId("theme"));
  let choices;
  try {
    const ask = () => fetch("api/choices", { cache: "no-store" });
    let reply = await ask();
    for (let left = BUSY_TRIES; reply.status === 503 && reply.headers.has("Retry-After") && left > 0; left -= 1) {
      await new Promise((done) => setTimeout(done, 1000));
      reply = await ask();
    }
    if (!reply.ok) throw new Error((await reply.text()).trim().slice(0, 300));
    choices = await reply.json();
    if (choices.state === undefined) throw new Error(choices.error?.text ?? "the answer is of another version");
  } catch (error) {
    byId("answer").setAttribute("aria-busy", "false");
    byId("trouble").replaceChildren(
      make("h2", {}, "No answer"),
      make(
        "p",
        {},
        "The studio does not answer" +
          (error.message ? ": " + error.message : "") +
          ". Is it still running? Reload the page when it is.",
      ),
    );
    byId("trouble").hidden = false;
    return;
  }
  byId("tabs").hidden = !choices.cluster;
  byId("cluster-note").hidden = !choices.cluster?.note;
  setText(byId("cluster-note"), choices.cluster?.note ?? "");
  live = choices.machines.find(({ name }) => name === choices.cluster?.machine) ?? null;
  state = copyOf({ ...EMPTY, ...choices.state });
  answer = new Answer(choices, ({ job = {}, ...rest }) =>
    change((next) => {
      for (const [field, value] of Object.entries({ ...job, ...rest })) setAt(next, field, value);
    }),
  );
  form = new Form(choices, change, (text) => answer.tell(text));
  pins = new Pins(choices, (pinned) => change((next) => Object.assign(next, copyOf(pinned))), say);
  new Copies({ state: () => state, link: linkNow, say });
  planAsker = new Asker("api/plan", { answer: onPlan, waiting: (is) => answer.waiting(is), failed: onFailed });
  moreAsker = new Asker("api/more", { answer: onMore, failed: (text) => text !== null && answer.moreFailed(text) });
  follow();
  if (writtenLink === "") {
    form.show(state, null);
    writeLink();
    plan(false);
  }
  addEventListener("hashchange", follow);
  // What is asked ends with the page; a page that the browser has kept and shows again asks anew.
  addEventListener("pagehide", () => {
    clearTimeout(restTimer);
    planAsker.stop();
    moreAsker.stop();
  });
  addEventListener("pageshow", (event) => event.persisted && plan(false));
}

start();
