"use strict";
// Follows a server: asks for what is shown every two seconds, less often while it does not answer, and not at all while nobody looks.
// Texts of the server are put in as text. Parts of a job's report come as HTML that the server has made and escaped; the page's policy
// runs no script but this file and shared.js (planner/report/page/), whatever they hold.

const EVERY = 2000, SLOWEST = 15000, PATIENCE = 8000;
const timeOf = (ms) => ms > 0 ? duration(ms * 1e6) : "–";
// ---- The map ----
// Style, mark and words of each kind of cell, in the order of the legend.
const KINDS = {
  ready: ["", "", "ready"], cordoned: ["cordoned", "‖", "cordoned"], warned: ["warned", "!", "with a warning"],
  partial: ["absent", "½", "half attached"], absent: ["absent", "–", "away"], lost: ["lost-node", "×", "lost"],
};
// What is worst of a cell's nodes.
function kindOf(cell) {
  const missing = ["lost", "absent", "partial"].find((kind) => cell.presence[kind] > 0);
  if (missing !== undefined) return missing;
  if (cell.cordoned > 0) return "cordoned";
  return cell.warned > 0 || cell.withdrawn > 0 ? "warned" : "ready";
}
function nameOf(cell) { return cell.nodes === 1 ? cell.first : cell.first + " to " + cell.last + ", " + plural(cell.nodes, "node"); }
function describe(cell) {
  const words = [];
  for (const [kind, nodes] of Object.entries(cell.presence)) {
    if (nodes > 0) words.push((cell.nodes === 1 ? "" : nodes + " ") + KINDS[kind][2]);
  }
  if (cell.cordoned > 0) words.push(cell.nodes === 1 ? "cordoned" : cell.cordoned + " cordoned");
  if (cell.warned > 0) words.push(cell.nodes === 1 ? "with a warning" : cell.warned + " with warnings");
  words.push(cell.used + " of " + plural(cell.devices, "device") + " busy");
  if (cell.withdrawn > 0) words.push(plural(cell.withdrawn, "device") + " withdrawn");
  return nameOf(cell) + ": " + words.join(", ");
}

let cells = [], chosen = null, current = 0;  // chosen: the first name of the cell whose nodes are listed
let nodesAsked = 0;  // how often nodes were asked for; only the newest answer is shown
function drawMap() {
  const map = byId("map");
  while (map.children.length > cells.length) map.lastChild.remove();
  while (map.children.length < cells.length) map.append(make("button", { type: "button", class: "cell" }, make("i"), make("b")));
  current = Math.max(0, Math.min(current, cells.length - 1));
  cells.forEach((cell, i) => {
    const button = map.children[i], [kind, mark] = KINDS[kindOf(cell)], text = describe(cell);
    button.className = "cell " + kind;
    button.tabIndex = i === current ? 0 : -1;
    button.firstChild.style.height = (cell.devices > 0 ? 100 * Math.min(1, cell.used / cell.devices) : 0) + "%";
    setText(button.lastChild, mark);
    if (button.getAttribute("aria-label") !== text) { button.setAttribute("aria-label", text); button.title = text; }
    button.setAttribute("aria-expanded", String(chosen === cell.first));
  });
  setText(byId("map-aside"), cells.length === 0 ? "no node has attached" : cells.some((c) => c.nodes > 1) ? "a cell is up to " + plural(Math.max(...cells.map((c) => c.nodes)), "node") + "; filled as far as their devices are busy"
                                                                                                 : "a cell is a node, filled as far as its devices are busy");
  byId("map-keys").hidden = cells.length === 0;
}
function drawLegend() {
  const key = ([kind, mark]) => make("span", { class: "cell key " + kind, "aria-hidden": "true" }, make("b", {}, mark));
  byId("map-legend").append(make("span", {}, swatch("forward"), "busy devices"),
    ...Object.values(KINDS).map((kind) => make("span", {}, key(kind), kind[2])));
}
function point(i) { if (cells[i] !== undefined) setText(byId("node-line"), describe(cells[i])); }
function moveTo(i) {
  current = i;
  drawMap();
  byId("map").children[current]?.focus();
}
function indexOf(event) { return [...byId("map").children].indexOf(event.target.closest(".cell")); }
function listenToMap() {
  const map = byId("map");
  map.addEventListener("pointerover", (event) => point(indexOf(event)));
  map.addEventListener("focusin", (event) => { current = indexOf(event); point(current); });
  map.addEventListener("click", (event) => {
    const cell = cells[indexOf(event)];
    if (cell === undefined) return;
    chosen = chosen === cell.first ? null : cell.first;
    byId("node-detail").replaceChildren();
    drawMap();
    showNodes().catch(() => {});  // the next look says what is wrong
  });
  map.addEventListener("keydown", (event) => {
    const across = Math.max(1, [...map.children].filter((b) => b.offsetTop === map.children[0].offsetTop).length);
    const to = { ArrowRight: current + 1, ArrowLeft: current - 1, ArrowDown: current + across, ArrowUp: current - across, Home: 0, End: cells.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    moveTo(to);
  });
}
function remarks(node) {
  const cordon = node.cordon === null ? "" : (node.drain ? "drained: " : "cordoned: ") + node.cordon;
  return [cordon, ...node.conditions].filter(Boolean).join("; ");
}
async function showNodes() {
  const mine = ++nodesAsked;
  const detail = byId("node-detail"), cell = cells.find((c) => c.first === chosen);
  detail.hidden = cell === undefined;
  if (cell === undefined) return detail.replaceChildren();
  const range = "?from=" + encodeURIComponent(cell.first) + "&to=" + encodeURIComponent(cell.last);
  const { nodes, more } = await ask("/api/nodes" + range);
  if (chosen !== cell.first || mine !== nodesAsked) return;
  const rows = nodes.map((n) => make("tr", {}, make("th", { scope: "row" }, n.name),
    make("td", {}, (n.agent ? "agent" : "no agent") + ", " + (n.worker ? "worker" : "no worker")),
    make("td", {}, n.used + " of " + n.devices + (n.model === "" ? "" : " × " + n.model)),
    make("td", {}, n.seenMs > 0 ? clock(n.seenMs) : "never"),
    make("td", {}, ...n.jobs.flatMap((id) => [make("a", { href: "#job=" + encodeURIComponent(id) }, id), " "])),
    make("td", { class: "why" }, remarks(n))));
  const table = tableOf([["node"], ["attached"], ["devices busy"], ["last heard"], ["jobs"], ["remarks"]], rows, { class: "jobs" });
  const note = more ? make("p", { class: "note" }, "There are more; these are the first 100.") : null;
  const attributes = { class: "scroll", tabindex: "0", role: "group", "aria-label": "Nodes of the cell" };
  replaceKeeping(detail, make("div", attributes, table, note));
}

// ---- Figures and jobs ----
function figure(title, value, sub) {
  return make("div", { class: "figure" }, make("h2", {}, title), make("p", { class: "value" }, value), make("p", { class: "sub" }, sub));
}
function drawCluster(cluster) {
  const { all, jobs } = cluster;
  cells = cluster.cells;
  setText(byId("subtitle"), "lynx-server " + cluster.version + ", at " + clock(cluster.timeMs));
  const missing = all.presence.lost + all.presence.absent + all.presence.partial;
  const busy = all.devices === 0 ? "no device" : Math.round(100 * all.used / all.devices) + "% of them";
  byId("figures").replaceChildren(
    figure("Nodes", grouped(all.presence.ready), missing === 0 ? "ready, all of them" : "ready of " + grouped(all.nodes) + "; " + all.presence.lost + " lost, " + (missing - all.presence.lost) + " away"),
    figure("Devices busy", grouped(all.used) + " of " + grouped(all.devices), busy + (all.withdrawn > 0 ? "; " + all.withdrawn + " withdrawn" : "")),
    figure("Jobs training", grouped(jobs.running), (jobs.planning + jobs.starting) + " about to, " + jobs.queued + " waiting"),
    figure("Jobs done", grouped(jobs.succeeded), jobs.failed + " failed, " + jobs.cancelled + " cancelled"));
  byId("chips").replaceChildren(...(all.cordoned > 0 ? [make("li", {}, "cordoned ", make("b", {}, String(all.cordoned)))] : []));
  drawMap();
}
function jobRow(job) {
  const share = job.steps > 0 ? job.done / job.steps : 0;
  const bar = make("progress", { max: "1", value: String(share), "aria-label": "progress of " + job.name });
  const why = job.state === "queued" && job.pending.length > 0 ? job.pending.join("; ") : job.reason;
  return make("tr", { "data-job": job.id },
    make("th", { scope: "row" }, make("a", { href: "#job=" + encodeURIComponent(job.id) }, job.name), make("span", { class: "id" }, " " + job.id)),
    make("td", {}, make("span", { class: "state " + job.state }, job.state)), make("td", {}, bar, " " + job.done + "/" + job.steps),
    make("td", { class: "r" }, timeOf(job.stepMs)), make("td", { class: "r" }, timeOf(job.predictedMs)), make("td", { class: "r" }, job.tokensPerSecond > 0 ? count(job.tokensPerSecond) : "–"),
    make("td", { class: "r" }, job.done > 0 && job.loss !== null ? job.loss.toFixed(3) : "–"), make("td", { class: "r" }, percent(job.goodput)), make("td", { class: "r" }, String(job.restarts)), make("td", { class: "why" }, why));
}
function drawJobs({ jobs, more }) {
  setText(byId("jobs-aside"), jobs.length === 0 ? "none yet: lynxctl submit -f JOB.yaml" : more ? "the first " + jobs.length + "; lynxctl list --limit N has more" : plural(jobs.length, "job"));
  const heads = [["job"], ["state"], ["steps"], ["step", "r"], ["predicted", "r"], ["tokens/s", "r"], ["loss", "r"], ["goodput", "r"], ["restarts", "r"], ["why"]];
  const table = tableOf(heads, jobs.map(jobRow), { class: "jobs", "aria-label": "Jobs" });
  replaceKeeping(byId("jobs-scroll"), jobs.length === 0 ? make("p", {}, "No job has been submitted.") : table);
}

// ---- One job ----
let shown = new Map();  // part -> its HTML, of the job that is shown
function drawJob(job) {
  const host = byId("job-parts");
  const wanted = new Set(job.parts.map((part) => part.id));
  for (const element of [...host.children]) if (!wanted.has(element.dataset.part)) { element.remove(); shown.delete(element.dataset.part); }
  job.parts.forEach((part, i) => {
    let element = [...host.children].find((child) => child.dataset.part === part.id);
    if (element === undefined) element = make("div", { "data-part": part.id, class: part.id === "head" ? "top" : null });
    if (host.children[i] !== element) host.insertBefore(element, host.children[i] ?? null);
    if (shown.get(part.id) === part.html) return;
    shown.set(part.id, part.html);
    replaceKeeping(element, fragmentOf(part.html));
  });
  document.title = job.name + " · " + job.state + " · Lynx";
}

// ---- Asking ----
class Refused extends Error {}
async function ask(path) {
  const reply = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (reply.ok) return reply.json();
  throw new Refused((await reply.text()).trim().slice(0, 300) || "status " + reply.status);
}
const jobOfAddress = () => new URLSearchParams(location.hash.slice(1)).get("job");
let viewed = null;  // the job whose parts are shown
function showView() {
  const job = jobOfAddress();
  if (job !== viewed) {
    viewed = job;
    shown = new Map();
    byId("job-parts").replaceChildren();
    if (job !== null) document.title = "Lynx job";
  }
  byId("cluster-view").hidden = byId("top").hidden = job !== null;
  byId("job-view").hidden = job === null;
  if (job === null) document.title = "Lynx cluster";
}
// isNewest(): no other look has begun since. What an older one got may be older than what is shown.
async function look(isNewest) {
  const job = jobOfAddress();
  showView();
  if (job !== null) {
    const answer = await ask("/api/job?id=" + encodeURIComponent(job));
    if (jobOfAddress() === job && isNewest()) drawJob(answer);
    return;
  }
  const [cluster, jobs] = await Promise.all([ask("/api/cluster"), ask("/api/jobs")]);
  if (jobOfAddress() !== null || !isNewest()) return;
  drawCluster(cluster);
  drawJobs(jobs);
  if (chosen !== null) await showNodes();
}

let timer = 0, failures = 0, lastGood = 0, round = 0;
async function turn() {
  clearTimeout(timer);
  if (document.hidden) return;
  const mine = ++round;
  try {
    await look(() => mine === round);
    if (mine !== round) return;
    failures = 0;
    lastGood = Date.now();
    byId("lost").hidden = true;
    document.body.classList.remove("stale");
  } catch (error) {
    if (mine !== round) return;
    ++failures;
    const said = error instanceof Refused ? "The server says: " + error.message : "The server does not answer.";
    setText(byId("lost"), said + (lastGood > 0 ? " What is shown is of " + clock(lastGood) + "." : "") + " Trying again.");
    byId("lost").hidden = false;
    document.body.classList.toggle("stale", lastGood > 0);
  }
  timer = setTimeout(turn, Math.min(SLOWEST, EVERY * 2 ** Math.min(failures, 3)));
}

drawLegend();
listenToMap();
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
byId("back").addEventListener("click", (event) => { event.preventDefault(); location.hash = ""; });
addEventListener("hashchange", () => { turn(); scrollTo(0, 0); });
addEventListener("online", turn);
document.addEventListener("visibilitychange", turn);
turn();
