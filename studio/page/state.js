// What is planned: model, machine, and fields of the job. A link holds it as base64url of UTF-8 JSON in the address's fragment.

export const EMPTY = { model: {}, machine: {}, job: {}, nodes: 0, memoryBytes: 0, linkScale: 1 };
export const DEFAULT_BATCH = 256; // samples of a step (train.globalBatch), if a state says nothing
const KEYS = Object.keys(EMPTY);

// A copy that can be changed without changing the original.
export function copyOf(state) {
  return { ...state, model: { ...state.model }, machine: { ...state.machine }, job: { ...state.job } };
}

export function encoded(state) {
  let binary = "";
  for (const byte of new TextEncoder().encode(JSON.stringify(state))) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

// The state of a fragment such as "#s=eyJ..."; null if it has none. An Error says what is wrong with a fragment that was cut or
// changed.
export function decoded(fragment) {
  const text = new URLSearchParams(fragment.replace(/^#/, "")).get("s");
  if (text === null) return null;
  let state;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    state = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new Error(
      "The link is damaged: perhaps its end is missing. The studio begins with its own plan; copy the link again.",
    );
  }
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isObject(state)) throw new Error("The link holds no plan. The studio begins with its own.");
  const unknown = Object.keys(state).find((key) => !KEYS.includes(key));
  if (unknown !== undefined)
    throw new Error(`The link holds '${unknown}', which this studio does not know: it may be of another version.`);
  const whole = { ...EMPTY, ...state };
  const right =
    isObject(whole.model) &&
    isObject(whole.machine) &&
    isObject(whole.job) &&
    [whole.nodes, whole.memoryBytes, whole.linkScale].every(Number.isFinite);
  if (!right)
    throw new Error("The link holds a plan of another shape than this studio knows. The studio begins with its own plan.");
  return copyOf(whole);
}

// The value at a name as the form and the service use it: nodes, memoryBytes, linkScale, or a field of the job. null: not set.
export function valueAt(state, field) {
  if (field === "nodes" || field === "memoryBytes") return state[field] || null;
  if (field === "linkScale") return state.linkScale === 1 ? null : state.linkScale;
  return state.job[field] ?? null;
}

export function setAt(state, field, value) {
  if (field === "nodes" || field === "memoryBytes") state[field] = value ?? 0;
  else if (field === "linkScale") state.linkScale = value ?? 1;
  else if (value === null) delete state.job[field];
  else state.job[field] = value;
}

// What people type, as the job file would read it.
export function typed(text, kind) {
  text = text.trim();
  const number = Number(text);
  const whole = !Number.isInteger(number) || Number.isSafeInteger(number);
  if ((kind === "integer" || kind === "real") && whole && String(number) === text) return number;
  return kind === "boolean" && (text === "true" || text === "false") ? text === "true" : text;
}
