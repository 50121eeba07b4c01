"use strict";
// Reads /live and shows it. All text from the server is put there as text, never as HTML.

const $ = (id) => document.getElementById(id);
const TOKEN = "milepost-token";
const PAST_MAX_S = 900;
const PHASES = {
  receive: ["c5", "the request arrives"],
  queue: ["c1", "it waits for a thread or an event loop"],
  run: ["c0", "the application, a folder or an upstream answers"],
  send: ["c2", "the response goes to the client"],
  total: ["", "all of it"],
  gil: ["", "part of run: waiting for the interpreter lock (GIL)"],
  cpu: ["", "part of run: processor time"],
};
const MARKS = { start: ["c7", "server started"], reload: ["c2", "reload"], upgrade: ["c1", "upgrade"], crash: ["c8", "process crashed"], recycling: ["c3", "process recycled"] };
const BEGINNING = "Collecting the first second of data.";
const PRESSURES = ["calm", "saturated", "overloaded"];

let bounds = [];
const columns = new Map();
let latest = null;
let isPaused = false;
let sortBy = { key: "sum", isDown: true };
let sentencesAt = 0;

// Numbers as people read them, as the tools write them.
const digits = (value) => (value >= 100 || value === 0 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
function duration(seconds) {
  if (!(seconds > 0)) return "0";
  for (const [unit, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (seconds >= unit) return `${digits(seconds / unit)} ${name}`;
  }
  return `${Math.round(seconds * 1e9)} ns`;
}
const count = (value) => value.toLocaleString("en-US");
function bytes(value) {
  for (const [unit, name] of [[2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]]) {
    if (value >= unit) return `${digits(value / unit)} ${name}`;
  }
  return `${value} B`;
}
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
function age(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${seconds} s`;
}

function element(name, className, ...parts) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...parts);
  return made;
}

// What stands in backticks is code.
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", "", part) : part));
}

// Puts rows into a table and keeps those that are there, so that a selection and a place of scrolling stay. A cell is a
// text, or [text, class], or an element; the first is the row's name.
function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    cells.forEach((cell, index) => {
      let place = row.cells[index];
      if (!place) {
        place = document.createElement(index ? "td" : "th");
        if (!index) place.scope = "row";
        row.append(place);
      }
      const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
      if (place.className !== className) place.className = className;
      if (text instanceof Node) place.replaceChildren(text);
      else if (place.textContent !== text) place.textContent = text;
    });
  });
}

const number = (text) => [text, "n"];
const warning = (value) => [count(value), value ? "n bad" : "n"];

function show(now) {
  const shownAge = Math.max(0, now.at - now.started_unix_s);
  state(now.doing, now.doing === "serving" ? "good" : "doubtful");
  const facts = [`version ${now.version}`, now.python, `up for ${age(shownAge)}`, `configuration ${now.generation}`];
  $("facts").textContent = facts.filter(Boolean).join(" · ");
  showSentences(now.span_s ? now.sentences : [BEGINNING]);
  showCards(now);
  showLife(now);
  showPools(now);
  showLoop(now.event_loop);
  showRunning(now);
  showRoutes(now);
  showConnections(now);
  showUpstreams(now);
  showHost(now.host);
  showDisks(now.disks);
  drawHeat();
}

function state(text, className) {
  $("doing").textContent = text;
  $("doing").className = `chip ${className}`;
}

// Screen readers say each change: not each second.
function showSentences(texts) {
  const before = $("sentences").children;
  if (before.length && sentencesAt && performance.now() - sentencesAt < 5000) return;
  const isSame = before.length === texts.length && texts.every((text, at) => before[at].textContent === text.replaceAll("`", ""));
  if (isSame) return;
  // The first sentences take the place of this one at once.
  sentencesAt = texts[0] === BEGINNING ? 0 : performance.now();
  $("sentences").replaceChildren(...texts.map((text) => element("p", "remark note", ...withCode(text))));
}

function showCards(now) {
  const total = now.phases.find((phase) => phase.name === "total");
  const sum = (key) => now.pools.reduce((all, pool) => all + pool[key], 0);
  const inLoop = now.event_loop ? now.event_loop.inside : 0;
  const cards = [
    ["requests a second", now.span_s ? digits(now.requests / now.span_s) : "–"],
    ["median", now.requests ? duration(total.p50) : "–"],
    ["99 % up to", now.requests ? duration(total.p99) : "–"],
    ["answered with 5xx", count(now.failed), now.failed > 0],
    ["running", count(Math.max(sum("running"), inLoop))],
    ["waiting", count(sum("waiting")), sum("waiting") > 0],
    ["connections", count(now.open)],
    ["crashes", count(now.crashes), now.crashes > 0],
  ];
  const parent = $("cards");
  cards.forEach(([name, value, isBad], at) => {
    const card = parent.children[at] || parent.appendChild(element("div", "card", element("b"), element("span", "", name)));
    card.firstChild.textContent = value;
    card.classList.toggle("bad", Boolean(isBad));
  });
}

function showLife(now) {
  const parts = now.phases.slice(0, 4);
  const all = parts.reduce((sum, phase) => sum + phase.mean, 0);
  parts.forEach((phase, at) => {
    const bar = $("life").children[at] || $("life").appendChild(element("div", PHASES[phase.name][0], element("b", "", phase.name), element("span")));
    const share = all ? phase.mean / all : 0;
    bar.hidden = !all;
    bar.style.flexGrow = String(share);
    bar.lastChild.textContent = share > 0.08 ? `${duration(phase.mean)} · ${(100 * share).toFixed(0)} %` : "";
  });
  fill($("phases"), now.phases.map((phase) => {
    const [colour, what] = PHASES[phase.name];
    const name = colour ? element("span", "", element("i", `key ${colour}`), phase.name) : phase.name;
    const figures = [phase.mean, phase.p50, phase.p99, phase.start_p50, phase.start_p99];
    return [name, what, ...figures.map((value) => number(duration(value)))];
  }));
}

// Parts of a whole as a bar; readers of the screen get the numbers beside it.
function bar(parts) {
  const made = element("span", "bar");
  made.setAttribute("aria-hidden", "true");
  for (const [colour, share] of parts) {
    const part = element("i", colour);
    part.style.width = `${Math.min(100, 100 * share)}%`;
    made.append(part);
  }
  return made;
}

function showPools(now) {
  $("pools-section").hidden = !now.pools.length;
  fill($("pools"), now.pools.map((pool) => {
    const most = Math.max(1, pool.threads_max);
    const isFull = pool.waiting > 0 && pool.idle === 0;
    const isLate = pool.oldest_wait > pool.queue_target;
    const refused = pool.refused + pool.shed + pool.expired;
    const gil = pool.gil_share_permille === null ? "–" : `${(pool.gil_share_permille / 10).toFixed(0)} %`;
    const pressure = PRESSURES[pool.pressure] || PRESSURES[2];
    return [
      pool.name,
      bar([[isFull ? "c8" : "c0", pool.running / most], ["c7", Math.max(0, pool.threads - pool.running) / most]]),
      number(count(pool.running)), number(count(pool.threads)), number(count(pool.threads_max)),
      warning(pool.waiting), [`${duration(pool.oldest_wait)} / ${duration(pool.queue_target)}`, isLate ? "n bad" : "n"], warning(refused), number(gil), isFull ? `${pressure}: requests wait for a thread` : pressure,
    ];
  }));
}

function showLoop(loop) {
  $("loop-section").hidden = !loop;
  if (!loop) return;
  const threads = (running, most, waiting) => number(`${running} of ${most}, ${waiting} waiting`);
  const rows = [
    ["Late by up to", number(duration(loop.lag_ns / 1e9))],
    ["Busy", number(`${(loop.busy_permille / 10).toFixed(0)} %`)],
    ["Requests inside", number(`${count(loop.inside)} of ${count(loop.inside_max)}`)],
    ["Steps that blocked it, since start", number(count(loop.slow_steps))],
    ["WebSockets", number(count(loop.websockets))],
  ];
  if (loop.anyio_max) rows.push(["Threads of anyio", threads(loop.anyio_running, loop.anyio_max, loop.anyio_waiting)]);
  if (loop.executor_max) rows.push(["Threads of the executor", threads(loop.executor_threads, loop.executor_max, loop.executor_waiting)]);
  fill($("loop"), rows);
}

// Paths are what clients have sent.
function showRunning(now) {
  $("running-table").hidden = !now.running.length;
  fill($("running"), now.running.map((one) => [
    `${one.method} ${one.path}`, number(duration(one.ran_ms / 1e3)), number(duration(one.waited_ms / 1e3)), one.pool,
    number(one.worker === null ? String(one.pid) : `${one.pid}.${one.worker}`), [one.id, "id"],
  ]));
  const more = now.running_more;
  $("more-running").textContent = more > 0 ? `and ${count(more)} more` : now.running.length ? "" : "None.";
}

function showRoutes(now) {
  const { key, isDown } = sortBy;
  const order = (one, other) => (key === "route" ? one.route.localeCompare(other.route) : one[key] - other[key]);
  const routes = [...now.routes].sort((one, other) => (isDown ? order(other, one) : order(one, other)));
  fill($("routes"), routes.map((route) => [
    route.route, number(count(route.requests)), number(duration(route.sum)), number(duration(route.mean)),
    number(duration(route.p50)), number(duration(route.p99)), warning(route.failed),
  ]));
  const more = now.routes_len - now.routes.length;
  $("more-routes").textContent = !now.span_s ? BEGINNING : !now.routes_len ? "No request has ended in the last minute."
    : more > 0 ? `${count(more)} other routes took less time.` : "";
}

function showConnections(now) {
  const isShown = ([name, value]) => value > 0 || name === "idle" || name === "sending";
  const doing = Object.entries(now.connections).filter(isShown).map(([name, value]) => [name.replaceAll("_", " "), number(count(value))]);
  const queue = now.accept_queue === null ? [] : [["waiting to be accepted", warning(now.accept_queue)]];
  fill($("connections"), [["open", number(count(now.open))], ...doing, ...queue]);
  const rows = now.processes.map((one) => [
    number(count(one.slot)), number(count(one.generation)), one.state === "ready" ? one.state : [one.state, "bad"],
    number(one.resident_bytes === null ? "–" : bytes(one.resident_bytes)),
  ]);
  const more = now.processes_len - now.processes.length;
  if (more > 0) rows.push([`${count(more)} more`, "", "", ""]);
  fill($("processes"), rows);
}

function showUpstreams(now) {
  $("upstreams-section").hidden = !now.upstreams_len;
  fill($("upstreams"), now.upstreams.map((one) => {
    const state = one.ejected ? ["gets no requests for a while", "bad"] : one.limit ? "in use" : ["not used", "bad"];
    return [
      one.server, one.upstream, number(count(one.in_flight)), number(count(one.limit)), number(count(one.requests)),
      number(one.latency === null ? "–" : duration(one.latency)), warning(one.failed), state,
    ];
  }));
  const more = now.upstreams_len - now.upstreams.length;
  $("more-upstreams").textContent = more > 0 ? `${count(more)} other servers had fewer requests.` : "";
}

// What the kernel does not say has no row.
function showHost(host) {
  const share = (value, most) => [`${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`, value >= most ? "n bad" : "n"];
  const rows = [
    ["Programs waited for a processor", host.pressure_cpu, Infinity], ["Programs waited for memory", host.pressure_memory, 0.1],
    ["Programs waited for storage", host.pressure_io, 0.1], ["Processor time taken by the hypervisor (steal)", host.stolen, 0.1],
    ["Processor quota used up (throttled)", host.throttled, 0.1],
  ].filter(([, value]) => value !== null).map(([name, value, most]) => [name, share(value, most)]);
  if (host.dropped !== null) rows.push(["Connections dropped before they were accepted", warning(host.dropped)]);
  fill($("host"), rows.length ? rows : [["The kernel says nothing of the machine", ""]]);
  const stall = host.last_stall;
  $("stall").textContent = stall ? `${age(stall.age_s)} ago ${stall.text}.` : "";
}

function showDisks(disks) {
  const maybe = (value, text) => number(value === null ? "–" : text(value));
  fill($("disks"), disks.map((one) => {
    return [
      one.name,
      one.lines === null ? maybe(one.written_bytes, bytes) : number(`${count(one.lines)} lines`),
      one.waiting_bytes === null ? number(`${count(one.waiting)} tasks`) : number(bytes(one.waiting_bytes)),
      one.dropped === null ? number("–") : warning(one.dropped), warning(one.failed), number(duration(one.slowest)),
      one.free_bytes === null ? number("–") : [bytes(one.free_bytes), one.is_nearly_full ? "n bad" : "n"],
    ];
  }));
}

// The heat map: time to the right, durations upwards, ever more of the past until there is a quarter of an hour.
const heat = $("heat");
const ROOM = { left: 60, right: 8, top: 16, bottom: 22 };

function shownSpan() {
  const first = Math.min(...columns.keys());
  const passed = latest.at - first;
  return [120, 300, PAST_MAX_S].find((span) => passed < span) || PAST_MAX_S;
}

// Seconds that belong to one column of pixels, added up.
function heatCells(span, width) {
  const step = Math.max(1, Math.ceil((span * 2) / width));
  const cells = new Map();
  for (const [at, counts] of columns) {
    const place = Math.floor((at - (latest.at - span) - 1) / step);
    if (place < 0) continue;
    const sum = cells.get(place) || counts.map(() => 0);
    counts.forEach((value, row) => { sum[row] += value; });
    cells.set(place, sum);
  }
  return { step, cells };
}

// Rows that the picture needs: of durations that nothing took, one on each side.
function shownRows() {
  let [low, high] = [bounds.length, 0];
  for (const counts of columns.values()) {
    counts.forEach((value, row) => { if (value) { low = Math.min(low, row); high = Math.max(high, row); } });
  }
  if (low > high) return [3, 10];
  low = Math.max(0, Math.min(low - 1, bounds.length - 6));
  return [low, Math.min(bounds.length, Math.max(high + 1, low + 6))];
}

function drawHeat() {
  if (!latest || !bounds.length) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const [width, height] = [heat.clientWidth, heat.clientHeight];
  const scale = devicePixelRatio || 1;
  [heat.width, heat.height] = [width * scale, height * scale];
  const context = heat.getContext("2d");
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  const [plotWidth, plotHeight] = [width - ROOM.left - ROOM.right, height - ROOM.top - ROOM.bottom];
  const span = shownSpan();
  const { step, cells } = heatCells(span, plotWidth);
  const [low, high] = shownRows();
  const rowHeight = plotHeight / (high - low + 1);
  const x = (seconds) => ROOM.left + (seconds / span) * plotWidth;
  const y = (row) => ROOM.top + plotHeight - (row - low + 1) * rowHeight;
  const most = Math.max(1, ...[...cells.values()].flat());
  context.fillStyle = colour("grid");
  context.globalAlpha = 0.55;
  context.fillRect(ROOM.left, ROOM.top, plotWidth, plotHeight);
  context.fillStyle = colour("p0");
  for (const [place, counts] of cells) {
    const cellWidth = Math.max(1, (step / span) * plotWidth - (step / span * plotWidth > 3 ? 1 : 0));
    counts.forEach((value, row) => {
      if (!value) return;
      context.globalAlpha = 0.18 + 0.82 * Math.log1p(value) / Math.log1p(most);
      context.fillRect(x(place * step), y(row), cellWidth, Math.max(1, rowHeight - 1));
    });
  }
  context.globalAlpha = 1;
  drawAxes(context, colour, { span, low, high, x, y, rowHeight, height });
  drawMarks(context, colour, { span, x, height });
  describe(span);
}

function drawAxes(context, colour, { span, low, high, x, y, rowHeight, height }) {
  context.fillStyle = colour("soft");
  context.textAlign = "right";
  context.textBaseline = "middle";
  const each = Math.max(1, Math.ceil(16 / rowHeight));
  for (let row = low; row <= high; row += each) {
    const text = row < bounds.length ? duration(bounds[row]) : `> ${duration(bounds[row - 1])}`;
    context.fillText(text, ROOM.left - 6, y(row) + rowHeight / 2);
  }
  context.textBaseline = "alphabetic";
  const parts = heat.clientWidth < 560 ? 2 : 4;
  for (let part = 0; part <= parts; part += 1) {
    context.textAlign = part === 0 ? "left" : part === parts ? "right" : "center";
    const seconds = (span * part) / parts;
    context.fillText(clock(latest.at - span + seconds), x(seconds), height - 6);
  }
}

function shownMarks(span) {
  return latest.marks.filter((mark) => mark.at > latest.at - span);
}

function drawMarks(context, colour, { span, x, height }) {
  for (const mark of shownMarks(span)) {
    const at = Math.round(x(mark.at - latest.at + span)) + 0.5;
    context.strokeStyle = context.fillStyle = colour(MARKS[mark.kind][0].replace("c", "p"));
    context.beginPath();
    context.moveTo(at, ROOM.top);
    context.lineTo(at, height - ROOM.bottom);
    context.stroke();
    context.beginPath();
    context.moveTo(at - 5, ROOM.top - 9);
    context.lineTo(at + 5, ROOM.top - 9);
    context.lineTo(at, ROOM.top);
    context.fill();
  }
}

// The duration that a share of the requests of some columns does not exceed: the end of a row.
function upTo(counts, share) {
  const rank = share * counts.reduce((sum, value) => sum + value, 0);
  let passed = 0;
  const row = counts.findIndex((value) => (passed += value) >= rank && value);
  return row < 0 ? "–" : row < bounds.length ? duration(bounds[row]) : `> ${duration(bounds.at(-1))}`;
}

function describe(span) {
  const marks = shownMarks(span);
  $("marks").replaceChildren(...marks.slice(-8).reverse().map((mark) => {
    const [colour, what] = MARKS[mark.kind];
    return element("span", "", element("i", `key ${colour}`), `${clock(mark.at)} ${what}`);
  }));
  const all = bounds.map(() => 0).concat(0);
  const minutes = new Map();
  for (const [at, counts] of columns) {
    const minute = Math.floor(at / 60) * 60;
    const sum = minutes.get(minute) || [...all].fill(0);
    counts.forEach((value, row) => { sum[row] += value; all[row] += value; });
    minutes.set(minute, sum);
  }
  const sum = (counts) => counts.reduce((total, value) => total + value, 0);
  const text = `${count(sum(all))} requests in ${age(span)}: half up to ${upTo(all, 0.5)}, 99 % up to ${upTo(all, 0.99)}; ${marks.length} marks`;
  if (heat.getAttribute("aria-label") !== text) heat.setAttribute("aria-label", text);
  if (!$("minutes").open) return;
  const rows = [...minutes].sort((one, other) => other[0] - one[0]);
  fill($("by-minute"), rows.map(([at, counts]) => [
    clock(at).slice(0, 5), number(count(sum(counts))), number(upTo(counts, 0.5)), number(upTo(counts, 0.99)),
  ]));
}

// What a cell of the heat map says under the pointer.
function showCell(event) {
  const tip = $("tip");
  if (!latest || !bounds.length) return;
  const box = heat.getBoundingClientRect();
  const [plotWidth, plotHeight] = [box.width - ROOM.left - ROOM.right, box.height - ROOM.top - ROOM.bottom];
  const [left, top] = [event.clientX - box.left - ROOM.left, event.clientY - box.top - ROOM.top];
  const isInside = left >= 0 && left < plotWidth && top >= 0 && top < plotHeight;
  tip.style.display = isInside ? "block" : "none";
  if (!isInside) return;
  const span = shownSpan();
  const [low, high] = shownRows();
  const { step, cells } = heatCells(span, plotWidth);
  const place = Math.floor((left / plotWidth) * span / step);
  const row = low + Math.floor((1 - top / plotHeight) * (high - low + 1));
  const value = (cells.get(place) || [])[row] || 0;
  const range = row >= bounds.length ? `over ${duration(bounds.at(-1))}` : row ? `${duration(bounds[row - 1])} to ${duration(bounds[row])}` : `up to ${duration(bounds[0])}`;
  tip.textContent = `${clock(latest.at - span + place * step)}\n${range}: ${count(value)} ${value === 1 ? "request" : "requests"}`;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 12)}px`;
}
heat.addEventListener("pointermove", showCell);
heat.addEventListener("pointerdown", showCell);
heat.addEventListener("pointerleave", () => { $("tip").style.display = "none"; });
addEventListener("resize", drawHeat);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawHeat);
$("minutes").addEventListener("toggle", drawHeat);

for (const button of document.querySelectorAll("#route-table thead button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement;
    const key = head.dataset.key;
    sortBy = { key, isDown: sortBy.key === key ? !sortBy.isDown : key !== "route" };
    document.querySelector("#route-table [aria-sort]").removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sortBy.isDown ? "descending" : "ascending");
    if (latest) showRoutes(latest);
  });
}

$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  $("pause").textContent = isPaused ? "Continue" : "Pause";
  if (!isPaused && latest) show(latest);
});

// The last hours: asked for when the page begins, once a minute, and by the buttons; more often while there is little of it.
const [PAST_EVERY_MS, PAST_EARLY_MS, PAST_EARLY_S] = [60000, 10000, 300];
let pastSpan = "15m";
let pastDueAt = 0;
const SPAN_NAMES = { "15m": "15 minutes", "1h": "hour", "24h": "24 hours" };

async function showPast() {
  pastDueAt = performance.now() + PAST_EVERY_MS;
  const span = pastSpan;
  try {
    const response = await ask(`/history?span=${span}`);
    if (span !== pastSpan) return;
    if (!response.ok) {
      $("past-span").textContent = (await response.text()).trim();
      return;
    }
    const past = await response.json();
    const covered = Math.min(past.span_s, Math.max(0, past.now - past.since));
    if (covered < PAST_EARLY_S) pastDueAt = performance.now() + PAST_EARLY_MS;
    const requests = past.minutes.reduce((sum, minute) => sum + (minute.requests || 0), 0);
    const since = covered < past.span_s ? ` The history begins ${age(covered)} ago.` : "";
    const figures = `${count(requests)} requests, by method and path, where numbers in paths are replaced by *.`;
    $("past-span").textContent = `The last ${SPAN_NAMES[span]}, as of ${clock(past.now)}: ${figures}${since}`;
    fill($("past"), past.paths.map((one) => [
      one.path || "(others)", number(count(one.requests)), number(duration(one.sum)), number(duration(one.mean)),
      number(duration(one.queue)), number(duration(one.max)),
      number(`${clock(one.slowest_at).slice(0, 5)}, 95 % up to ${duration(one.slowest_p95)}`), warning(one.failed),
    ]));
  } catch {
    // Without a connection the head of the page says so, and a minute later it is asked again.
  }
}

// What the report says of these requests, and what the simulation proposes.
async function explain() {
  const button = $("explain");
  button.disabled = true;
  const say = (...lines) => $("explained").replaceChildren(...lines);
  const remark = (text, className) => element("p", `remark ${className}`, ...withCode(text));
  say(remark("Reading the requests, then simulating them with other numbers of threads. This takes some seconds.", "note"));
  const lines = [];
  const sentences = (said) => (said.length ? said.map((text) => remark(`${text}.`.replace(/[.]+$/, "."), "note")) : [remark("Nothing stands out.", "note")]);
  try {
    for (const path of ["report", "whatif"]) {
      const response = await ask(`/${path}?span=${pastSpan}`);
      if (!response.ok) {
        lines.push(remark((await response.text()).trim(), "doubtful"));
        continue;
      }
      const { verdict } = await response.json();
      lines.push(...sentences(path === "report" ? verdict : verdict.sentences));
      say(...lines, remark("Simulating.", "note"));
    }
    say(...lines);
  } catch {
    say(...lines, remark("The connection was lost.", "doubtful"));
  }
  button.disabled = false;
}
$("explain").addEventListener("click", explain);

for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    pastSpan = button.dataset.span;
    for (const one of document.querySelectorAll("[data-span]")) one.setAttribute("aria-pressed", String(one === button));
    $("explained").replaceChildren();
    showPast();
  });
}

function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  return fetch(path, { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
}

// The stream. `fetch` and no EventSource, which cannot send a token.
function take(name, data) {
  if (name === "past") {
    bounds = data.bounds;
    for (const [at, counts] of data.columns) columns.set(at, counts);
  } else if (name === "silent") {
    state("the supervisor does not answer", "bad");
  } else if (name === "status") {
    for (const [at, counts] of data.columns) columns.set(at, counts);
    for (const at of columns.keys()) if (at < data.at - PAST_MAX_S) columns.delete(at);
    if (isPaused) return;
    latest = data;
    $("view").hidden = $("pause").hidden = false;
    show(data);
    if (performance.now() >= pastDueAt) showPast();
  }
}

async function read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [first, second] = event.split("\n");
      take(first.slice("event: ".length), JSON.parse(second.slice("data: ".length)));
    }
  }
}

function askForToken(text) {
  sessionStorage.removeItem(TOKEN);
  $("view").hidden = $("pause").hidden = true;
  $("refusal").textContent = text;
  $("token").hidden = false;
  $("secret").focus();
  state("a token is needed", "doubtful");
}

// Whether to try again.
async function connect() {
  const token = sessionStorage.getItem(TOKEN);
  const response = await ask("/live");
  if (response.status === 401) {
    askForToken(token ? "This is not the token of the server." : "");
    return false;
  }
  if (!response.ok) {
    state((await response.text()).trim() || `answer ${response.status}`, "bad");
    return true;
  }
  await read(response);
  return true;
}

async function run() {
  for (let rest = 1; ; rest = Math.min(2 * rest, 8)) {
    const begun = performance.now();
    try {
      if (!await connect()) return;
      if (performance.now() - begun > 5000) rest = 1;
    } catch {
      state("no connection", "bad");
    }
    await new Promise((done) => { setTimeout(done, rest * 1000); });
  }
}

$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("secret").value.trim());
  $("secret").value = "";
  $("token").hidden = true;
  run();
});
run();
