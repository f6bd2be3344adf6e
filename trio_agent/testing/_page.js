"use strict";
// Draws the report in #data: the heat map on one canvas per row of the table, the timeline of the selected run as SVG.
// Texts from the run only ever become text nodes, or are drawn.
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const T = D.texts;
const $ = (id) => document.getElementById(id);
const SVG = $("svg-source").namespaceURI;

function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
function svg(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const cssVar = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- outcome classes: Paul Tol's "muted" scheme, made for all kinds of colour vision; and a letter for each --------
const KNOWN = {
  returned: ["R", "#88CCEE"], cancelled: ["C", "#DDCC77"], interrupted: ["I", "#CC6677"],
  deadlock: ["D", "#AA4499"], livelock: ["L", "#882255"],
};
const OTHERS = ["#44AA99", "#999933", "#332288", "#117733", "#BB9988", "#6699CC", "#997700", "#994455"];
const taken = new Set(["R", "C", "I", "D", "L"]);
const classes = D.classes.map(([name, count]) => ({ name, count, letter: KNOWN[name]?.[0], color: KNOWN[name]?.[1] }));
classes.filter((c) => !c.letter).forEach((c, i) => {
  const word = c.name.replace(/^raised /, "").replace(/[^A-Za-z]/g, "").toUpperCase() || "?";
  c.letter = [...word, ..."EXYZ123456789"].find((letter) => !taken.has(letter)) || "?";
  taken.add(c.letter);
  c.color = OTHERS[i % OTHERS.length];
});
for (const c of classes) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(c.color.slice(i, i + 2), 16));
  c.ink = r * 0.3 + g * 0.59 + b * 0.11 > 140 ? "#1d2126" : "#ffffff";
}

// ---- the runs ------------------------------------------------------------------------------------------------------
const COUNT = D.tokens.length;
const AT = { s: "step", b: "idle", p: "point", l: "line" };
const ok = (i) => D.ok[i] === "1";
const fired = (i) => D.fired[i] === "1";
const token = (i) => D.scenario + D.tokens[i];
const byToken = new Map();
for (let i = COUNT - 1; i >= 0; i--) byToken.set(token(i), i);

function parts(i) {
  const plan = { injections: [], order: "arrival", choices: [] };
  for (const part of D.tokens[i].split("/").slice(1)) {
    const match = /^(?:order|([sbplo])(\d+))=(.+)$/.exec(part);
    if (!match) continue;
    const [, letter, number, value] = match;
    if (!letter) plan.order = value;
    else if (letter === "o") plan.choices.push([Number(number), Number(value)]);
    else plan.injections.push({ at: AT[letter], index: Number(number), action: value });
  }
  // in the order of time, where that can be told: the step comes before the rest that follows it
  const rank = { step: 0, idle: 1 };
  if (plan.injections.every((one) => one.at in rank)) plan.injections.sort((a, b) => a.index - b.index || rank[a.at] - rank[b.at]);
  return plan;
}
const runOf = (i) => D.runs[i] ?? D.runs[byToken.get(token(i))];
function placeWords({ at, index }) {
  if (at === "step") return `before task step ${index}`;
  if (at === "idle") return `at rest after step ${index}, when every task waits`;
  return at === "point" ? `at point ${index}, inside a step` : `before watched line ${index}`;
}
function orderWords(plan) {
  if (plan.order === "arrival" && !plan.choices.length) return "";
  const family = { any: "any permutation of a batch", trio: "the two orders of trio's scheduler", arrival: "arrival" };
  const choices = plan.choices.map(([n, c]) => `at decision ${n} choice ${c}`).join(", ");
  return `Order of the ready tasks (${family[plan.order] ?? plan.order}): ${choices || "that of arrival"}`;
}
function titleOf(i) {
  const plan = parts(i);
  const what = plan.injections.map((one) => `${one.action} ${placeWords(one)}`).join(", then ");
  if (what) return what;
  return plan.choices.length ? "nothing injected, another order of the ready tasks" : "the plain run";
}

// ---- header --------------------------------------------------------------------------------------------------------
const failing = [...D.ok].filter((one) => one === "0").length;
const without = [...D.fired].filter((one) => one === "0").length;
function swatch(c, more = "") {
  const node = el("span", { className: `swatch ${more}`, textContent: c.letter ?? "" });
  if (c.color) { node.style.background = c.color; node.style.color = c.ink; }
  return node;
}
let onlyClass = -1;
function header() {
  const [, module, name] = /^([^:]*):(.*)$/.exec(D.scenario) ?? [null, "", D.scenario];
  if (module) $("name").append(el("span", { className: "module", textContent: module }));
  $("name").append(name || "(no name)");
  $("summary").textContent = D.summary;
  const counts = [
    [COUNT, "runs"], [failing, "failing", failing ? "bad" : ""], [without, "without effect"],
    [D.steps, "steps of the plain run"], [D.sites, "waiting places hit"],
    [Object.keys(D.runs).length, "runs with a timeline"],
  ];
  for (const [number, words, more] of counts) {
    $("counts").append(el("div", { className: more ?? "" },
      el("b", { textContent: number.toLocaleString("en") }), el("span", { textContent: words })));
  }
  classes.forEach((c, k) => {
    const button = el("button", { type: "button" }, swatch(c), el("span", { textContent: c.name }),
      el("span", { className: "n", textContent: c.count.toLocaleString("en") }));
    button.dataset.k = k;
    button.setAttribute("aria-pressed", "false");
    $("legend").append(button);
  });
  $("legend").append(
    el("span", {}, el("span", { className: "swatch failing", textContent: "!" }), "failing"),
    el("span", {}, swatch({ color: "#88CCEE" }, "idle"), "faint: an action was not reached or had no effect"));
}

// ---- the heat map --------------------------------------------------------------------------------------------------
const groups = D.groups.map((g, number) => {
  const cells = new Map();
  let width = 0, height = 0;
  const order = [];
  g.entries.forEach((entry, k) => {
    const key = g.y[k] * 1e7 + g.x[k];
    width = Math.max(width, g.x[k]);
    height = Math.max(height, g.y[k]);
    const known = cells.get(key);
    if (known === undefined) order.push(key);
    if (known === undefined || (ok(known) && !ok(entry))) cells.set(key, entry);
  });
  order.sort((a, b) => a - b);
  return { ...g, number, cells, order, width, height, bad: g.entries.filter((entry) => !ok(entry)).length };
});
const home = new Map();  // entry -> [group, key of its cell]
for (const g of groups) g.entries.forEach((entry, k) => home.set(entry, [g, g.y[k] * 1e7 + g.x[k]]));

const LABEL = 236 + 14 + 48, AXIS = 13;
let selected = -1, wanted = 0, visible = [];
const passes = (i) => !($("only-failing").checked && ok(i)) && (onlyClass < 0 || D.outcomes[i] === onlyClass);
const inAction = (g) => !$("action").value || g.action.split(" + ").includes($("action").value);

function sized(g, room) {
  const strips = g.kind === "strip" || g.kind === "block";
  const widest = g.kind === "strip" ? Math.max(...visible.filter((o) => o.kind === "strip").map((o) => o.width)) : g.width;
  const fit = Math.floor(room / Math.max(widest, 1));
  const low = strips || g.height === 1 ? 12 : 6, high = strips || g.height === 1 ? 18 : 14;
  return wanted || Math.min(high, Math.max(low, fit));
}
function layout(g, room) {
  g.left = g.height > 1 ? 30 : 8;
  let size = sized(g, room - g.left);
  for (;;) {
    let columns = Math.max(1, Math.min(g.width, Math.floor((room - g.left) / size)));
    if (columns < g.width && columns > 10) columns -= columns % 10;
    g.columns = columns;
    g.size = size;
    g.bands = Math.ceil(g.width / columns);
    g.axis = g.ruler || g.bands > 1 || g.height > 1 ? AXIS : 0;
    g.bandHeight = g.height * size + g.axis + (g.bands > 1 || g.height > 1 ? 6 : 0);
    if (g.bands * g.bandHeight < 16000 || size <= 3) return;  // browsers refuse larger canvases
    size--;
  }
}
function spot(g, key) {
  const x = (key % 1e7) - 1, y = Math.floor(key / 1e7) - 1;
  const band = Math.floor(x / g.columns);
  return [g.left + (x % g.columns) * g.size, band * g.bandHeight + g.axis + y * g.size];
}
function draw(g) {
  const scale = window.devicePixelRatio || 1;
  const width = g.left + g.columns * g.size + 8, height = g.bands * g.bandHeight + 2;
  const canvas = g.canvas, c = canvas.getContext("2d"), s = g.size;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  c.scale(scale, scale);
  drawGround(c, g, s);
  c.textAlign = "center";
  c.textBaseline = "middle";
  c.font = `600 ${Math.min(11, Math.round(s * 0.64))}px system-ui, "DejaVu Sans", sans-serif`;
  for (const key of g.order) {
    const entry = g.cells.get(key);
    if (passes(entry)) drawCell(c, entry, ...spot(g, key), s);
  }
  const [where, key] = home.get(selected) ?? [];
  if (where === g) {
    const [x, y] = spot(g, key);
    c.lineWidth = 2;
    c.strokeStyle = cssVar("--back");
    c.strokeRect(x + 1, y + 1, s - 1, s - 1);
    c.strokeStyle = cssVar("--accent");
    c.lineWidth = 2.5;
    c.strokeRect(x, y, s + 1, s + 1);
  }
}
function drawGround(c, g, s) {
  c.fillStyle = cssVar("--track");
  for (let band = 0; band < g.bands; band++) {
    const columns = Math.min(g.columns, g.width - band * g.columns);
    c.fillRect(g.left, band * g.bandHeight + g.axis, columns * s, g.height * s);
  }
  if (!g.axis) return;
  c.font = "9.5px system-ui, \"DejaVu Sans\", sans-serif";
  c.fillStyle = cssVar("--muted");
  c.textAlign = "center";
  c.textBaseline = "alphabetic";
  const every = s >= 12 ? 5 : s >= 6 ? 10 : 20;
  for (let x = 1; x <= g.width; x++) {
    if (x % every && x !== 1 && (x - 1) % g.columns) continue;
    if ((x - 1) % g.columns && x % every === 0 && x === 2) continue;
    const [left, top] = spot(g, 1e7 + x);
    c.fillText(String(x), left + s / 2, top - 3);
  }
  if (g.height < 2) return;
  c.textAlign = "right";
  c.textBaseline = "middle";
  const rows = s >= 10 ? 5 : s >= 6 ? 10 : 20;
  for (let band = 0; band < g.bands; band++) {
    for (let y = 1; y <= g.height; y++) {
      if (y === 1 || y % rows === 0) c.fillText(String(y), g.left - 5, band * g.bandHeight + g.axis + (y - 0.5) * s);
    }
  }
}
function drawCell(c, entry, x, y, s) {
  const kind = classes[D.outcomes[entry]];
  const gap = s > 4 ? 1 : 0;
  if (ok(entry)) {
    c.globalAlpha = fired(entry) ? 1 : 0.28;
    c.fillStyle = kind.color;
    c.fillRect(x + gap / 2, y + gap / 2, s - gap, s - gap);
    c.fillStyle = fired(entry) ? kind.ink : cssVar("--muted");
    c.globalAlpha = fired(entry) ? 1 : 0.6;
  } else {
    const border = s >= 10 ? 2 : 1;
    c.fillStyle = cssVar("--fail");
    c.fillRect(x, y, s, s);
    c.fillStyle = "#000";
    c.fillRect(x + border, y + border, s - 2 * border, s - 2 * border);
    c.fillStyle = "#fff";
  }
  if (s >= 11) c.fillText(kind.letter, x + s / 2, y + s / 2 + 0.5);
  c.globalAlpha = 1;
}
function hit(event) {
  const canvas = event.target.closest?.("canvas");
  if (!canvas) return -1;
  const g = groups[canvas.dataset.g], box = canvas.getBoundingClientRect();
  const px = event.clientX - box.left - g.left, py = event.clientY - box.top;
  const band = Math.floor(py / g.bandHeight), y = Math.floor((py - band * g.bandHeight - g.axis) / g.size);
  const column = Math.floor(px / g.size);
  if (column < 0 || column >= g.columns || y < 0 || y >= g.height) return -1;
  const entry = g.cells.get((y + 1) * 1e7 + band * g.columns + column + 1);
  return entry !== undefined && passes(entry) ? entry : -1;
}
function label(g) {
  const plain = g.action === "none";
  const what = el("span", { className: "what" }, el("b", { textContent: plain ? (g.where ? "orders, plain" : "plain run") : g.action }));
  const where = plain ? "" : g.kind === "orders" ? `${g.where}, in each order` : g.where;
  if (where) what.append(" ", el("span", { className: "where", textContent: where }));
  what.title = `${g.action} ${g.where}`;
  const shown = g.entries.filter(passes).length;
  const n = el("span", { className: "n" });
  if (g.bad) n.append(el("em", { textContent: `${g.bad} failing` }), " / ");
  n.append(plural(shown, "run"));
  const node = el("div", { className: "label" }, what, n);
  if (g.height > 1) {
    const down = g.kind === "orders" ? `${g.lines} number` : g.lines;
    node.append(el("span", { className: "axes", textContent: `↓ ${down}\n→ ${g.columnsName}` }));
  }
  return node;
}
function render() {
  const map = $("map"), room = Math.max(200, map.clientWidth - LABEL);
  visible = groups.filter((g) => inAction(g) && g.entries.some(passes));
  const nodes = [];
  let ruler = 0, before = null;
  for (const g of visible) {
    g.ruler = g.kind === "strip" && g.height === 1 && g.width > 1 && ruler++ % 12 === 0;
    layout(g, room);
    g.canvas = el("canvas");
    g.canvas.dataset.g = g.number;
    g.canvas.setAttribute("aria-label", `${g.action} ${g.where}: ${plural(g.entries.length, "run")}, ${g.bad} failing`);
    const tall = g.bands > 1 || g.height > 1, card = g.kind === "matrix" && g.bands === 1;
    const names = label(g);
    if (card) {  // small multiples, side by side
      names.style.maxWidth = `${Math.max(210, g.left + g.columns * g.size)}px`;
      if (!nodes.at(-1)?.classList.contains("cards")) nodes.push(el("div", { className: "cards" }));
      nodes.at(-1).append(el("section", { className: "group card tall" }, names, g.canvas));
      continue;
    }
    names.style.paddingTop = `${g.axis}px`;
    const fresh = before !== null && before !== g.action ? " new" : "";
    nodes.push(el("section", { className: `group${tall ? " tall" : ""}${fresh}` }, names, g.canvas));
    before = g.action;
  }
  map.replaceChildren(...nodes);
  if (!nodes.length) map.append(el("p", { className: "empty", textContent: COUNT ? "No run passes the filters." : "No run in this report." }));
  for (const g of visible) draw(g);
  const shown = visible.reduce((sum, g) => sum + g.entries.filter(passes).length, 0);
  $("shown").textContent = shown === COUNT ? "" : `${shown.toLocaleString("en")} of ${plural(COUNT, "run")}`;
}

// ---- the panel -----------------------------------------------------------------------------------------------------
function code(text, id) {
  const copy = el("button", { className: "copy", type: "button", textContent: "copy" });
  copy.dataset.copy = text;
  return el("div", { className: "code" }, el("code", { textContent: text, id: id ?? "" }), copy);
}
function section(target, heading, ...nodes) {
  target.append(el("h3", { textContent: heading }), ...nodes);
}
const p = (text, className = "") => el("p", { textContent: text, className });
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function facts(i, run) {
  const box = $("facts");
  box.replaceChildren();
  const plan = parts(i), problems = D.problems[i] ?? [];
  if (!ok(i)) {
    section(box, "What does not hold", el("ul", { className: "problems", id: "problems" },
      ...(problems.length ? problems : ["(not recorded)"]).map((text) => el("li", { textContent: text }))));
  }
  const said = run && run.fired.length >= plan.injections.length ? effects(run) : [
    ...plan.injections.map((one) => p(`${one.action} ${placeWords(one)}`)),
    ...(run ? [...effects(run), p("Not every injection was reached.", "warning")] : []),
  ];
  if (orderWords(plan)) said.push(p(orderWords(plan)));
  section(box, "Injected", ...(said.length ? said : [p("nothing: the plain run")]));
  if (!run && !fired(i)) box.append(p("An action was not reached, or had no effect.", "warning"));
  const outcome = run && run.error >= 0 ? `${classes[D.outcomes[i]].name}: ${T[run.error]}` : classes[D.outcomes[i]].name;
  section(box, "Outcome", p(outcome));
  if (run) {
    if (run.differs >= 0) box.append(p(`Run again for the timeline, it ended otherwise: ${T[run.differs]}. The scenario is not deterministic.`, "warning"));
    for (const text of run.left) box.append(p(`left: ${T[text]}`));
  }
  const command = code(`python -m trio_agent.testing replay ${quoted(token(i))}`, "command");
  section(box, "Replay token", code(token(i), "token"));
  section(box, "Replay", command);
  if (D.scenario.includes("<locals>")) box.append(p("The scenario is a function inside a function, which no command can import: replay(token, scenario) in Python."));
  if (run) box.append(noteList(run));
}
function effects(run) {
  return run.fired.map(([, , time, , action, place, result, problem]) => {
    const words = `${T[action]} ${T[place]}, at ${T[time]} s`;
    return problem >= 0 ? p(`${words}: ${T[problem]}`, "warning") : p(result >= 0 ? `${words}: result: ${T[result]}` : words);
  });
}
function noteList(run) {
  const rows = run.notes.map(([order, step, time, kind, text]) => [order, step, time, T[kind], T[text], ""]);
  for (const [order, step, time, , action, place] of run.fired) rows.push([order, step, time, "injected", `${T[action]} ${T[place]}`, "injected"]);
  rows.sort((a, b) => a[0] - b[0]);
  const table = el("table", {}, el("tr", {}, ...["step", "s", "kind", "what"].map((text) => el("th", { textContent: text }))));
  for (const [, step, time, kind, text, mark] of rows.slice(0, 500)) {
    table.append(el("tr", { className: mark }, el("td", { className: "number", textContent: step }),
      el("td", { className: "number", textContent: T[time] }), el("td", { className: "kind", textContent: kind }), el("td", { textContent: text })));
  }
  const rest = Math.max(0, rows.length - 500) + run.more;
  const node = el("details", {}, el("summary", { textContent: `${plural(rows.length, "note")} in order` }), table);
  if (rest) node.append(p(`and ${rest} more`));
  return node;
}
function select(i, { scroll = true } = {}) {
  const old = home.get(selected)?.[0];
  selected = i;
  $("panel").hidden = i < 0;
  document.body.style.paddingBottom = i < 0 ? "" : `${$("panel").offsetHeight}px`;
  const now = home.get(i)?.[0];
  for (const g of new Set([old, now])) if (g?.canvas?.isConnected) draw(g);
  if (i < 0) return setHash("");
  $("title").textContent = titleOf(i);
  const kind = classes[D.outcomes[i]];
  $("badge").replaceChildren(swatch(kind), el("span", { textContent: kind.name }));
  if (!ok(i)) $("badge").append(el("span", { className: "failing-word", textContent: "failing" }));
  const run = runOf(i);
  facts(i, run);
  timeline(run);
  setHash(token(i));
  if (scroll && now?.canvas?.isConnected) reveal(now, home.get(i)[1]);
}
function reveal(g, key) {
  const y = g.canvas.getBoundingClientRect().top + spot(g, key)[1];
  const low = 60, high = window.innerHeight - $("panel").offsetHeight - 40;
  if (y < low || y > high) window.scrollBy({ top: y - (low + high) / 2 });
}
function setHash(text) {
  const url = text ? `#${encodeURI(text).replaceAll("#", "%23")}` : location.pathname + location.search;
  try { history.replaceState(null, "", url); } catch { if (text) location.hash = text; }
}
function fromHash() {
  const raw = location.hash.slice(1);
  if (!raw) return;
  let text = raw;
  try { text = decodeURIComponent(raw); } catch { /* as it is */ }
  const i = byToken.get(raw) ?? byToken.get(text);
  if (i !== undefined && i !== selected) select(i);
}
function move(dx, dy) {
  const [g, key] = home.get(selected) ?? [];
  if (!g) return;
  const cells = g.order.filter((k) => passes(g.cells.get(k)));
  if (dx) {
    const next = cells[cells.indexOf(key) + dx];
    if (next !== undefined) select(g.cells.get(next));
    return;
  }
  const x = key % 1e7;
  const nearest = (list) => list.sort((a, b) => Math.abs((a % 1e7) - x) - Math.abs((b % 1e7) - x))[0];
  const inside = cells.filter((k) => (k - key) * dy > 0 && k % 1e7 === x);
  if (inside.length) return select(g.cells.get(dy > 0 ? inside[0] : inside[inside.length - 1]));
  const other = visible[visible.indexOf(g) + dy];
  if (!other) return;
  const rest = other.order.filter((k) => passes(other.cells.get(k)));
  const edge = Math.floor((dy > 0 ? rest[0] : rest[rest.length - 1]) / 1e7);
  select(other.cells.get(nearest(rest.filter((k) => Math.floor(k / 1e7) === edge))));
}

// ---- the timeline --------------------------------------------------------------------------------------------------
let tips = [];
function tipped(node, text) {
  node.dataset.tip = tips.push(text) - 1;
  return node;
}
/** Put intervals into as few lines as they need; returns the number of lines, and sets `row` of each. */
function pack(bars) {
  const ends = [];
  for (const bar of bars) {
    let row = ends.findIndex((end) => end <= bar.from);
    if (row < 0) row = ends.length;
    ends[row] = bar.to;
    bar.row = row;
  }
  return ends.length;
}
const LEAD = 1, TOP = 40, BOX = 15, SCOPE = 9, GAP = 7, TOOL = 15, TICKS = 14;

/** Where everything stands: x in units of steps (step n is from n - 1 to n), y in pixels. */
function plot(run, room) {
  const shown = run.task.length, last = Math.max(shown, 1);
  const unit = Math.max(9, Math.min(42, Math.floor((room - 24) / (last + LEAD + 0.5))));
  const X = (x) => (Math.min(x, last + 0.4) + LEAD) * unit + 6;
  // things that happen inside one step are spread over its box, in their order
  const inside = new Map();
  const happened = [...run.notes.map((n) => [n[0], n[1]]), ...run.fired.filter((f) => T[f[3]] === "in").map((f) => [f[0], f[1]])];
  for (const [order, step] of happened) inside.set(step, [...(inside.get(step) ?? []), order]);
  for (const orders of inside.values()) orders.sort((a, b) => a - b);
  const rested = new Map(run.fired.filter((f) => T[f[3]] === "idle").map((f) => [f[1], f[0]]));
  const at = (step, order) => {
    if (rested.has(step) && order > rested.get(step)) return step;  // the action's own doing, after the step
    const orders = inside.get(step) ?? [order];
    return step - 1 + (orders.indexOf(order) + 1) / (orders.length + 1);
  };
  return { X, unit, last, at, width: X(last + 0.4) + 10 };
}
function timeline(run) {
  const box = $("timeline");
  box.replaceChildren();
  tips = [];
  if (!run) {
    box.append(el("p", { className: "none", textContent:
      "No timeline was recorded for this run: Report.write_html(path, timelines=N) records N of them, the failing runs first." }));
    return;
  }
  const P = plot(run, box.clientWidth - 168), names = el("div", { id: "lane-names" });
  const root = document.createElementNS(SVG, "svg"), chart = el("div", { id: "chart" }, names, root);
  const back = svg("g", {}, root), front = svg("g", {}, root);
  let y = TOP;
  const lane = (height, text, kind = "") => {
    svg("rect", { class: "lane", x: 0, y, width: P.width, height }, back);
    const node = el("div", { title: text }, ...(kind === "" ? [text] : [el("span", { className: "number", textContent: `${kind} ` }), text]));
    node.style.top = `${y}px`;
    names.append(node);
    const top = y;
    y += height + GAP;
    return top;
  };
  taskLanes(run, P, front, lane);
  toolLane(run, P, front, lane);
  noteLanes(run, P, front, lane);
  axis(run, P, back, y);
  injections(run, P, front, y);
  root.setAttribute("width", P.width);
  root.setAttribute("height", y);
  names.style.height = `${y}px`;
  box.append(chart, key(run));
  if (run.steps > run.task.length) box.append(el("p", { className: "none", textContent: `The first ${run.task.length} of ${run.steps} steps.` }));
  const first = run.fired[0];
  if (first && P.width > box.clientWidth - 168) box.scrollLeft = Math.max(0, P.X(first[1]) - (box.clientWidth - 168) / 2);
}
function taskLanes(run, P, front, lane) {
  let batch = 0;
  const batches = run.batch.map((difference) => (batch += difference));
  // the first task's first piece, before anything counts
  const steps = run.names.map(() => []);
  run.task.forEach((task, k) => steps[task]?.push(k));
  run.names.forEach((name, task) => {
    const end = (scope) => (scope[2] < 0 ? P.last + 1 : scope[2]);
    const scopes = run.scopes.filter((scope) => scope[0] === task || (task === 0 && scope[0] < 0))
      .map((scope) => ({ scope, from: scope[1], to: end(scope) + 0.25 }));
    const rows = pack(scopes);
    const top = lane(BOX + 4 + rows * SCOPE, T[name], task);
    if (task === 0 && run.notes.some((note) => note[1] === 0)) {
      tipped(svg("rect", { class: "step early", x: P.X(-0.9), y: top + 2, width: P.unit * 0.85, height: BOX - 1 }, front),
        `#0 ${T[name]}\nits first piece, before step 1`);
    }
    for (const k of steps[task]) {
      const line = T[run.line[k]];
      tipped(svg("rect", { class: "step", x: P.X(k) + 1, y: top + 2, width: P.unit - 2, height: BOX - 1 }, front),
        `step ${k + 1}: #${task} ${T[name]}\n${line ? `resumed at ${line}` : "no line of its own: it starts, or trio's code waits"}\nbatch ${batches[k]}, ${T[run.time[k]]} s`);
    }
    for (const { scope, row } of scopes) drawScope(scope, run, P, front, top + BOX + 3 + row * SCOPE, T[name]);
  });
}
const firedAt = ([order, step, , position], P) => (T[position] === "step" ? step - 1 : T[position] === "idle" ? step : P.at(step, order));
function drawScope([task, opened, closed, cancelled, flags, line], run, P, front, y, name) {
  const caught = flags & 1, shield = flags & 2;
  const left = P.X(opened - 0.5), right = P.X(closed < 0 ? P.last + 0.4 : closed - 0.3), h = SCOPE - 3;
  const words = [`${shield ? "shielded " : ""}cancel scope of #${task} ${name}`, T[line],
    `opened in step ${opened}, ${closed < 0 ? "never closed" : `closed in step ${closed}`}`];
  // cancelled in the step of an injection: by that, as far as anybody can tell
  const cause = run.fired.find((f) => f[1] === cancelled);
  if (cancelled >= 0) {
    const when = { idle: "after", step: "before" }[cause && T[cause[3]]] ?? "in";
    words.push(`cancelled ${when} step ${cancelled}; ${caught ? "it caught the cancellation" : "it caught nothing"}`);
  } else if (caught) words.push("its deadline passed; it caught the cancellation");
  const g = tipped(svg("g", {}, front), words.join("\n"));
  const width = Math.max(3, right - left);
  svg("rect", { class: "scope-body", x: left, y, width, height: h }, g);
  if (shield) svg("rect", { class: "scope-shield", x: left, y, width, height: h }, g);
  svg("path", { class: "scope", d: `M${left},${y - 1}V${y + h} M${left},${y + h / 2}H${left + width}` + (closed < 0 ? "" : ` M${left + width},${y - 1}V${y + h}`) }, g);
  const m = y + h / 2;
  if (cancelled >= 0) {
    const x = Math.max(left, Math.min(left + width, P.X(cause ? firedAt(cause, P) : cancelled - 0.5)));
    svg("path", { class: "scope-cut", d: `M${x},${m}H${left + width}` }, g);
    svg("path", { class: "cut-mark", d: `M${x - 3.5},${m - 3.5}l7,7m0,-7l-7,7` }, g);
  }
  if (caught) svg("circle", { class: "caught", cx: left + width, cy: m, r: 4 }, g);
}
const EFFECTS = { begun: "▸", returned: "✓", cut: "✂", raised: "!" };
function toolLane(run, P, front, lane) {
  if (!run.tools.length) return;
  const bars = run.tools.map(([name, call, start, startOrder, end, endOrder], number) => ({
    name: T[name], call: T[call], number, start, end, from: P.at(start, startOrder),
    to: end === undefined ? P.last + 0.4 : Math.max(P.at(end, endOrder), P.at(start, startOrder) + 0.3),
  })).sort((a, b) => a.from - b.from);
  const rows = pack(bars);
  const top = lane(rows * (TOOL + 2) + 2, "tools");
  for (const bar of bars) {
    const y = top + 2 + bar.row * (TOOL + 2), x = P.X(bar.from), width = P.X(bar.to) - x;
    const marks = run.effects.filter((effect) => effect[0] === bar.number);
    const words = [`${bar.name} ${bar.call}`, `started in step ${bar.start}, ${bar.end === undefined ? "never ended" : `ended in step ${bar.end}`}`];
    for (const [, step, , phase] of marks) words.push(`effect ${T[phase]} in step ${step}`);
    tipped(svg("rect", { class: bar.end === undefined ? "tool tool-open" : "tool", x, y, width, height: TOOL, rx: 2 }, front), words.join("\n"));
    // the name stands where no mark is: after the first, before the second
    const at = marks.map(([, step, order]) => P.X(P.at(step, order)));
    const left = at.length ? at[0] + 7 : x + 5, fits = Math.floor(((at[1] ?? x + width) - left - 6) / 6.2);
    if (fits >= 3) {
      const text = svg("text", { class: "tool-name", x: left, y: y + 11 }, front);
      text.textContent = bar.name.length > fits ? `${bar.name.slice(0, fits - 1)}…` : bar.name;
    }
    for (const [, step, order, phase] of marks) {
      const text = svg("text", { class: "effect", x: P.X(P.at(step, order)), y: y + 11 }, front);
      text.textContent = EFFECTS[T[phase]] ?? "•";
      tipped(text, `${bar.name} ${bar.call}\neffect ${T[phase]} in step ${step}`);
    }
  }
}
function noteLanes(run, P, front, lane) {
  const kinds = new Map();
  for (const note of run.notes) {
    const kind = kinds.size < 12 || kinds.has(T[note[3]]) ? T[note[3]] : "other notes";
    kinds.set(kind, [...(kinds.get(kind) ?? []), note]);
  }
  for (const [kind, notes] of kinds) {
    const top = lane(TICKS, `${kind}${notes.length > 1 ? ` (${notes.length})` : ""}`);
    for (const [order, step, time, name, text] of notes) {
      const x = P.X(P.at(step, order));
      const g = tipped(svg("g", { class: "note" }, front), `${T[name]}${T[text] ? `: ${T[text]}` : ""}\nstep ${step}, ${T[time]} s`);
      svg("rect", { class: "grab", x: x - 3, y: top, width: 6, height: TICKS }, g);
      svg("path", { class: "tick", d: `M${x},${top + 2}V${top + TICKS - 2}` }, g);
    }
  }
}
function axis(run, P, back, bottom) {
  let previous = run.time[0], clock = -99;
  const stamp = (k) => {
    const x = P.X(k);
    if (x < clock) return;
    clock = x + 52;
    svg("text", { x: x + 1, y: 13 }, back).textContent = `${T[run.time[k]]} s`;
  };
  if (run.time.length) stamp(0);
  run.task.forEach((task, k) => {
    if (k && run.batch[k]) svg("path", { class: "batch", d: `M${P.X(k)},${TOP - 8}V${bottom - GAP}` }, back);
    if (run.time[k] !== previous) stamp(k);
    previous = run.time[k];
    const every = P.unit >= 18 ? 1 : P.unit >= 12 ? 5 : 10;
    if (k === 0 || (k + 1) % every === 0) svg("text", { x: P.X(k + 0.5), y: TOP - 11, "text-anchor": "middle" }, back).textContent = k + 1;
  });
}
function injections(run, P, front, bottom) {
  const seen = new Map();
  for (const [order, step, time, position, action, place, result, problem] of run.fired) {
    const x = P.X(firedAt([order, step, time, position], P));
    const dead = problem >= 0 ? " idle" : "";
    const words = `${T[action]} ${T[place]}, ${T[time]} s${problem >= 0 ? `\n${T[problem]}` : ""}${result >= 0 ? `\nresult: ${T[result]}` : ""}`;
    svg("path", { class: `injection${dead}`, d: `M${x},${TOP - 6}V${bottom - GAP}` }, front);
    svg("path", { class: `injection${dead}`, d: `M${x},16V${TOP - 24}` }, front);
    const shift = seen.get(x) ?? 0;
    seen.set(x, shift + T[action].length * 6.4 + 14);
    const late = x + T[action].length * 6.4 + 12 > P.width;
    const text = svg("text", { class: "injection-label", x: late ? x - 5 : x + 4 + shift, y: 13, "text-anchor": late ? "end" : "start" }, front);
    text.textContent = dead ? `${T[action]} (no effect)` : T[action];
    tipped(text, words);
    tipped(svg("rect", { class: "grab", x: x - 3, y: 0, width: 6, height: bottom - GAP }, front), words);
  }
}
function key(run) {
  const words = ["box: a task step", "thin line: a batch of the scheduler", "red line: the injection"];
  if (run.scopes.length) words.push("bracket: a cancel scope; ✕ cancelled; ● it caught");
  if (run.effects.length) words.push("▸ effect begun, ✓ returned, ✂ cut, ! raised");
  return el("div", { id: "key" }, ...words.map((text) => el("span", { textContent: text })));
}

// ---- events: few listeners, on containers --------------------------------------------------------------------------
function tip(text, event) {
  const node = $("tip");
  node.hidden = !text;
  if (!text) return;
  node.textContent = text;
  const x = Math.min(event.clientX + 14, window.innerWidth - node.offsetWidth - 8);
  const y = event.clientY + 18 + node.offsetHeight > window.innerHeight ? event.clientY - node.offsetHeight - 10 : event.clientY + 18;
  node.style.left = `${Math.max(4, x)}px`;
  node.style.top = `${Math.max(4, y)}px`;
}
function words(i) {
  const state = ok(i) ? "" : ` — FAILING: ${(D.problems[i] ?? [])[0] ?? ""}`;
  return `${titleOf(i)}\n${classes[D.outcomes[i]].name}${state}${fired(i) ? "" : "\nan action was not reached or had no effect"}\n${token(i)}`;
}
$("map").addEventListener("mousemove", (event) => {
  const i = hit(event);
  tip(i < 0 ? "" : words(i), event);
});
$("map").addEventListener("mouseleave", () => tip(""));
$("map").addEventListener("click", (event) => {
  const i = hit(event);
  if (i >= 0) select(i, { scroll: false });
});
$("timeline").addEventListener("mousemove", (event) => {
  const node = event.target.closest("[data-tip]");
  tip(node ? tips[node.dataset.tip] : "", event);
});
$("timeline").addEventListener("mouseleave", () => tip(""));
$("facts").addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    const area = document.body.appendChild(el("textarea", { value: button.dataset.copy }));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1200);
});
$("legend").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  onlyClass = onlyClass === Number(button.dataset.k) ? -1 : Number(button.dataset.k);
  for (const other of $("legend").querySelectorAll("button")) other.setAttribute("aria-pressed", String(Number(other.dataset.k) === onlyClass));
  render();
});
$("filters").addEventListener("input", () => {
  wanted = Number($("size").value);
  if (wanted && wanted < 4) wanted = 4;
  $("size-shown").textContent = wanted ? `${wanted} px` : "auto";
  render();
});
$("close").addEventListener("click", () => select(-1));
$("previous").addEventListener("click", () => move(-1, 0));
$("next").addEventListener("click", () => move(1, 0));
$("taller").addEventListener("click", () => {
  $("panel").classList.toggle("tall");
  document.body.style.paddingBottom = `${$("panel").offsetHeight}px`;
});
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.("input, select, textarea")) return;
  if (event.key === "Escape") return select(-1);
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!step || selected < 0) return;
  event.preventDefault();
  move(...step);
});
window.addEventListener("hashchange", fromHash);
let width = 0;
window.addEventListener("resize", () => {
  if (width === window.innerWidth) return;
  width = window.innerWidth;
  requestAnimationFrame(() => { render(); if (selected >= 0) timeline(runOf(selected)); });
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);

header();
for (const g of groups) g.columnsName = g.kind === "orders" ? "order number" : D.groups[g.number].columns;
const actions = [...new Set(groups.flatMap((g) => g.action.split(" + ")))];
$("action").append(el("option", { value: "", textContent: "all" }), ...actions.map((name) => el("option", { value: name, textContent: name === "none" ? "none (plain)" : name })));
render();
fromHash();
})();
