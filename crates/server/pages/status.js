// The status page: counts, queues and nodes by polling, tasks by live events.

import { call, find, hint, make, number, problem, read, table } from "./common.js";
import { follow } from "./live.js";

const POLL_MS = 2000;
const OPEN = 20;
const SHOWN = 20;
const TILES = [
  ["Waiting", ["QUEUED", "WAITING"], "waiting"], ["Running", ["RUNNING"], "running"], ["Retrying", ["RETRYING"], "retrying"],
  ["Completed", ["COMPLETED"], "completed"], ["With errors", ["COMPLETED_WITH_ERRORS"], "retrying"],
  ["Failed", ["FAILED", "DEAD_LETTER"], "failed"], ["Cancelled", ["CANCELLED"], "cancelled"],
];
const COUNT = new Intl.NumberFormat("en");
// Each shown task: its newest version and its cells.
const rows = new Map();

const sum = (tasks, statuses) => statuses.reduce((total, status) => total + (tasks[status] ?? 0), 0);

function showCounts(queues) {
  const all = {};
  for (const queue of queues) {
    for (const [status, count] of Object.entries(queue.tasks)) all[status] = (all[status] ?? 0) + count;
  }
  find("counts").replaceChildren(...TILES.map(([name, statuses, kind]) => make("div", { className: `tile ${kind}` },
    make("strong", {}, COUNT.format(sum(all, statuses))), make("span", {}, name))));
}

function showQueues(queues) {
  const line = (queue) => [
    make("td", { className: "name", title: queue.name }, queue.name,
      queue.paused ? make("span", { className: "badge retrying" }, "paused") : null),
    number(COUNT.format(sum(queue.tasks, ["QUEUED", "WAITING"]))), number(COUNT.format(sum(queue.tasks, ["RUNNING"]))),
    number(COUNT.format(sum(queue.tasks, ["RETRYING"]))), number(COUNT.format(sum(queue.tasks, ["FAILED", "DEAD_LETTER"]))),
  ];
  const head = ["Queue", ...["Waiting", "Running", "Retrying", "Failed"].map((text) => make("th", { className: "number" }, text))];
  find("queues").replaceChildren(queues.length ? table(head, queues.map(line)) : hint("None yet: the first task creates its queue."));
}

function showNodes(nodes) {
  const newest = nodes.filter((node) => !node.lostAt).concat(nodes.filter((node) => node.lostAt).slice(-3));
  const state = (node) => make("span", { className: `badge ${node.lostAt ? "failed" : "completed"}` },
    node.lostAt ? `lost ${age(node.lostAt)} ago` : `up ${age(node.startedAt)}`);
  const name = (node) => make("td", { className: "name", title: node.nodeId }, `${node.name} on ${node.host}`);
  find("nodes").replaceChildren(newest.length ? table(["Node", ""], newest.map((node) => [name(node), state(node)]))
    : hint("No node runs tasks."));
}

function age(moment) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(moment)) / 1000));
  const [unit, size] = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]].find(([, size]) => seconds >= size) ?? ["s", 1];
  return `${Math.floor(seconds / size)}${unit}`;
}

function progress(value) {
  const percent = typeof value?.percent === "number" ? value.percent : null;
  const message = typeof value?.message === "string" ? value.message : "";
  if (percent === null) return [message];
  return [make("progress", { max: 100, value: percent }), ` ${Math.round(percent)}% ${message}`];
}

function badge(status) {
  const kind = TILES.find(([, statuses]) => statuses.includes(status))?.[2] ?? "waiting";
  return make("span", { className: `badge ${kind}` }, status.replaceAll("_", " ").toLowerCase());
}

function showTasks(tasks) {
  rows.clear();
  const line = (task) => {
    const cells = { status: make("td", {}, badge(task.status)), progress: make("td", { className: "message" }) };
    cells.progress.append(...(task.errorMessage && task.status !== "RUNNING" && task.status !== "COMPLETED" ? [task.errorMessage] : progress(task.progress)));
    rows.set(task.taskId, { version: task.version, status: task.status, cells });
    const link = make("button", { type: "button", className: "id" }, task.taskId);
    link.addEventListener("click", () => showTask(task.taskId).catch((error) => problem(error.message)));
    return [link, make("td", { className: "name", title: task.taskType }, task.taskType), cells.status,
      make("td", { className: "name", title: task.queue }, task.queue), number(`${task.attempt}/${task.maxAttempts}`), cells.progress,
      make("td", { className: "number", title: task.createdAt }, age(task.createdAt))];
  };
  const head = ["Id", "Type", "Status", "Queue", make("th", { className: "number" }, "Try"), "Progress", make("th", { className: "number" }, "Age")];
  find("tasks").replaceChildren(tasks.length ? table(head, tasks.map(line)) : welcome());
}

// Reads the whole record with a call: a plain link could not send the token.
async function showTask(id) {
  const path = `/api/tasks/${encodeURIComponent(id)}`;
  const [task, why] = await Promise.all([read(path), read(`${path}/why`)]);
  find("task-why").textContent = why.sentence;
  find("task-record").textContent = JSON.stringify(task, null, 2);
  find("task").showModal();
}

function welcome() {
  const body = `'{"taskType":"sample.progress","parameters":{"steps":50,"stepMs":200}}'`;
  return make("div", {}, hint("No task yet. Try one of these:"),
    make("pre", {}, `longhaul submit sample.progress '{"steps":50,"stepMs":200}' --watch\n`
      + `curl -s ${location.origin}/api/tasks -H 'content-type: application/json' -d ${body}`));
}

// Runs at once, then at most once per `ms`. The last call always runs.
function throttled(ms, work) {
  let timer = null;
  let again = false;
  const run = async () => {
    again = false;
    await work().catch((error) => problem(error.message));
    timer = setTimeout(() => { timer = null; if (again) start(); }, ms);
  };
  const start = () => { timer = -1; run(); };
  return () => { if (timer === null) start(); else again = true; };
}

// Open tasks first, then the newest of the rest: many small tasks must not hide a long one.
const refreshTasks = throttled(500, async () => {
  const open = `/api/tasks?status=RUNNING,RETRYING,WAITING&size=${OPEN}`;
  const [first, rest] = await Promise.all([read(open), read(`/api/tasks?size=${SHOWN}`)]);
  const known = new Set(first.items.map((task) => task.taskId));
  showTasks([...first.items, ...rest.items.filter((task) => !known.has(task.taskId))]);
});

const refreshPlatform = throttled(500, async () => {
  try {
    const [queues, nodes] = await Promise.all([read("/api/queues"), read("/api/nodes")]);
    showCounts(queues.items);
    showQueues(queues.items);
    showNodes(nodes.items);
    problem(null);
  } catch (error) {
    if (error.status !== 403) throw error;
    for (const id of ["queues", "nodes"]) find(id).replaceChildren(hint("Your token may not see this: it needs the scope operate."));
  }
});

function onEvent(name, data) {
  const row = rows.get(data.taskId);
  if (name !== "progress" || !row || row.status !== data.status) {
    refreshTasks();
    refreshPlatform();
    return;
  }
  if (data.version < row.version) return;
  row.version = data.version;
  row.cells.progress.replaceChildren(...progress(data.progress));
}

function showConnection(isConnected, error) {
  find("live").textContent = isConnected ? "live" : "not connected";
  find("live").className = isConnected ? "live on" : "live";
  if (error) problem(error.message);
}

async function start() {
  // One call first, so that the page asks for a token only once. The following calls report other failures.
  const needsToken = await call("/api/types").then(() => false, (error) => error.status === 401);
  if (needsToken) return showConnection(false);
  refreshPlatform();
  refreshTasks();
  setInterval(() => { if (!document.hidden) refreshPlatform(); }, POLL_MS);
  follow("/api/events", onEvent, showConnection);
}

find("task-close").addEventListener("click", () => find("task").close());
start();
