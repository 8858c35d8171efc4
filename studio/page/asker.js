// Asks the service one kind of question. At most one request is under way; of the questions that come meanwhile only the newest
// is asked.

const PATIENT = 300; // milliseconds after which a request gives way to a newer question
const SILENT = 150; // milliseconds without an answer, after which people are told that they wait
const AGAIN = 2000; // milliseconds until a service that does not answer is asked again

let sequence = 0; // one for all kinds: the service knows a page by its client id, and newer questions by larger numbers
const client = [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// What the service says when it refuses a request; its text is for people.
export class Refused extends Error {}

export async function post(path, body, signal) {
  const reply = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    cache: "no-store",
    signal,
  });
  if (reply.ok) return reply.json();
  const refusal = new Refused((await reply.text()).trim().slice(0, 500) || "status " + reply.status);
  refusal.again = reply.status === 503 || reply.status === 429 ? 1000 * (Number(reply.headers.get("Retry-After")) || 1) : 0;
  throw refusal;
}

export class Asker {
  // on.answer(answer, question), on.waiting(true or false), on.failed(text, or null when it answers again).
  constructor(path, on) {
    Object.assign(this, { path, on, next: null, flying: null, timer: 0 });
  }

  ask(question) {
    this.next = question;
    if (this.flying === null) return this.#send();
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => this.next !== null && this.flying !== null && this.#send(),
      Math.max(0, this.flying.begun + PATIENT - performance.now()),
    );
  }

  // What was asked no longer matters.
  stop() {
    this.next = null;
    clearTimeout(this.timer);
    this.flying?.abort.abort();
    this.flying = null;
    this.on.waiting?.(false);
  }

  async #send() {
    clearTimeout(this.timer);
    this.flying?.abort.abort();
    const question = this.next,
      flight = { abort: new AbortController(), begun: performance.now() };
    this.next = null;
    this.flying = flight;
    const silent = setTimeout(() => this.flying === flight && this.on.waiting?.(true), SILENT);
    let wait = 0,
      answer = null;
    try {
      answer = await post(this.path, { ...question, sequence: ++sequence, client }, flight.abort.signal);
      if (this.flying !== flight) return;
      this.on.failed?.(null);
      if (answer.stale) wait = 1; // a newer question has taken its place; if there is none, this one is asked again
    } catch (error) {
      if (this.flying !== flight) return;
      wait = error instanceof Refused ? error.again : AGAIN;
      const told = error instanceof Refused ? "The studio says: " + error.message : "The studio does not answer.";
      const advice = error instanceof Refused ? "" : " Is lynxctl studio still running?";
      this.on.failed?.(told + advice + (wait > 0 ? " The page asks again." : ""));
    } finally {
      clearTimeout(silent);
    }
    this.flying = null;
    if (wait > 0) {
      this.next ??= question;
      this.timer = setTimeout(() => this.flying === null && this.next !== null && this.#send(), wait);
      return;
    }
    if (this.next !== null) this.#send();
    else this.on.waiting?.(false);
    if (answer !== null) this.on.answer(answer, question);
  }
}
