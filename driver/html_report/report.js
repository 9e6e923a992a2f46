"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const viewers = [];
const GROUP = 7, KERNEL = 8, KIND = 9, CHANGE = 10, RULES = 11;  // places in an operator's list, see content.py

function seconds(value) {
  const [scale, unit] = value < 1e-3 ? [1e6, "us"] : value < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((value * scale).toPrecision(4))} ${unit}`;
}

function showTip(event, content) {
  tip.hidden = false;
  tip.replaceChildren(...content);
  const {clientWidth, clientHeight} = document.documentElement;
  const x = event.clientX + 16 + tip.offsetWidth > clientWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, clientHeight - tip.offsetHeight - 6))}px`;
}

function hue(group) { return Math.round(group * 137.508) % 360; }
function clip(text, width, character) {
  const most = Math.max(1, Math.floor((width - 8) / character));
  return text.length <= most ? text : text.slice(0, most - 1) + "\u2026";
}

class Viewer {
  constructor(root) {
    this.root = root;
    this.graph = data.graphs[root.dataset.graph];
    this.svg = root.querySelector("svg");
    this.search = root.querySelector("input");
    this.total = this.graph.operators.reduce((sum, o) => sum + o[6], 0);
    this.step = -1;
    this.levels();
    this.listen();
    this.show(this.graph.views[this.preferred()]);
  }

  make(tag, attributes, parent) {
    const made = document.createElementNS(this.svg.namespaceURI, tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (parent) parent.appendChild(made);
    return made;
  }

  /* The finest view that can be read as a whole, else the coarsest. */
  preferred() {
    const found = this.graph.views.findLastIndex(view => this.fitting(view) >= 0.5);
    return found < 0 ? 0 : found;
  }

  fitting(view) {
    const {clientWidth: width, clientHeight: height} = this.svg;
    return Math.min(width / (view.size[0] + 48), height / (view.size[1] + 72), 1.15);
  }

  levels() {
    const bar = this.root.querySelector(".levels");
    if (this.graph.views.length < 2) { bar.remove(); return; }
    for (const view of this.graph.views) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = view.name;
      button.addEventListener("click", () => { this.show(view); if (this.chosen >= 0) this.reveal(this.chosen); });
      bar.appendChild(button);
    }
  }

  show(view) {
    this.view = view;
    this.svg.replaceChildren();
    this.world = this.make("g", {}, this.svg);
    this.boxes = view.boxes.map(box => this.box(box));
    this.paths();
    this.boxes.push(...view.boxes.filter(box => box[0] === 0).map(box => this.title(box)));
    this.dearest = Math.max(...view.vertices.map(v => this.cost(v[6])), 1e-30);
    this.vertices = view.vertices.map((vertex, index) => this.vertex(vertex, index));
    for (const button of this.root.querySelectorAll(".levels button"))
      button.setAttribute("aria-pressed", button.textContent === view.name);
    this.near = this.make("path", {class: "edges near"}, this.world);
    this.fit();
    this.mark(this.chosen ?? -1);
    this.find(false);
  }

  cost(members) { return members.reduce((sum, m) => sum + this.graph.operators[m][6], 0); }
  group(vertex) { return this.graph.operators[vertex[6][0]][GROUP]; }

  box([level, number, x, y, width, height]) {
    const group = level === 0 || this.view.name === "kernels" ? number : this.groupOfKernel(number);
    const made = this.make("g", {class: `box level${level}`}, this.world);
    const color = `hsl(${hue(group)} 60% var(--hull)`;
    const style = {fill: `${color} / ${level ? "0" : "var(--hull-fill)"})`, stroke: `${color} / .75)`};
    Object.assign(this.make("rect", {x, y, width, height}, made).style, style);
    made.dataset.group = group;
    return made;
  }

  title([, number, x, y, width]) {
    const made = this.make("g", {class: "box level0", "data-group": number}, this.world);
    this.make("text", {x: x + 9, y: y + 16}, made).textContent = clip(`sub-graph ${number}`, width, 6.6);
    return made;
  }

  groupOfKernel(kernel) {
    if (!this.kernelGroup) this.kernelGroup = new Map(this.graph.operators.map(o => [o[KERNEL], o[GROUP]]));
    return this.kernelGroup.get(kernel);
  }

  vertex([x, y, width, height, first, second, members], index) {
    const single = this.view.name === "operators";
    const operator = this.graph.operators[members[0]];
    const made = this.make("g", {class: `vertex ${single ? "c" + operator[2] : "many"}`, "data-index": index}, this.world);
    const body = this.make("rect", {class: "body", x, y, width, height}, made);
    if (!single) {
      body.style.fill = `color-mix(in srgb, hsl(${hue(operator[GROUP])} 60% 50%) 16%, var(--panel))`;
      body.style.stroke = `hsl(${hue(operator[GROUP])} 55% var(--hull))`;
    }
    const kinds = members.map(m => this.graph.operators[m][KIND]).filter(kind => kind);
    if (kinds.length) {
      const common = kinds.every(kind => kind === kinds[0]) ? kinds[0] : data.kinds.indexOf("changed");
      made.classList.add("marked");
      this.make("rect", {class: `mark k${common}`, x: x + 2, y: y + 3, width: 6, height: height - 6}, made);
    }
    const heat = (width - 8) * this.cost(members) / this.dearest;
    if (heat >= 0.7) this.make("rect", {class: "heat", x: x + 4, y: y + height - 4, width: heat, height: 2.5}, made);
    const middle = x + width / 2;
    this.make("text", {x: middle, y: y + (second ? 14 : 21)}, made).textContent = clip(first, width, 7);
    if (second) this.make("text", {class: "small", x: middle, y: y + 26}, made).textContent = clip(second, width, 6);
    return made;
  }

  ends([source, target]) {
    const [x1, y1, w1, h1] = this.view.vertices[source], [x2, y2, w2] = this.view.vertices[target];
    return [[x1 + w1 / 2, y1 + h1], [x2 + w2 / 2, y2]];
  }

  points(edge) {
    const [start, end] = this.ends(edge), between = [];
    for (let i = 2; i < edge.length; i += 2) between.push([edge[i], edge[i + 1]]);
    return [start, ...between, end];
  }

  path(edge) {
    const points = this.points(edge);
    let drawn = `M${points[0][0]} ${points[0][1]}`;
    for (let i = 1; i < points.length; i++) {
      const [a, b] = points[i - 1], [c, d] = points[i];
      const bend = Math.min(60, Math.abs(d - b) / 2), turn = points[i + 1]?.[1] < d ? 14 : -14;
      if (a === c) drawn += `V${d}`;
      else if (b === d) drawn += `C${a} ${b + turn} ${c} ${d + turn} ${c} ${d}`;
      else drawn += `C${a} ${b + bend} ${c} ${d - bend} ${c} ${d}`;
    }
    return drawn;
  }

  /* Edges over so many layers that they have no place of their own are faint. */
  isLong(edge) {
    const points = this.points(edge);
    return points.some(([x, y], i) => i && x !== points[i - 1][0] && Math.hypot(x - points[i - 1][0], y - points[i - 1][1]) > 700);
  }

  paths() {
    for (const [kind, isLong] of [["edges long", true], ["edges", false]]) {
      const drawn = this.view.edges.filter(edge => this.isLong(edge) === isLong).map(edge => this.path(edge));
      this.make("path", {class: kind, d: drawn.join("")}, this.world);
    }
  }

  /* --- moving about */

  fit() {
    const scale = this.fitting(this.view), {clientWidth: width, clientHeight: height} = this.svg;
    this.move((width - this.view.size[0] * scale) / 2, Math.max(36 * scale, (height - this.view.size[1] * scale) / 2), scale);
  }

  move(x, y, scale) {
    Object.assign(this, {x, y, scale});
    this.world.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${scale.toFixed(4)})`);
    this.svg.classList.toggle("far", scale < 0.3);
  }

  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.02, this.scale * factor)), ratio = scale / this.scale;
    this.move(x - (x - this.x) * ratio, y - (y - this.y) * ratio, scale);
  }

  center(x, y, width, height, most = 1) {
    const {clientWidth, clientHeight} = this.svg;
    const scale = Math.min(most, clientWidth / (width + 80), clientHeight / (height + 80));
    this.move(clientWidth / 2 - (x + width / 2) * scale, clientHeight / 2 - (y + height / 2) * scale, scale);
  }

  /* --- what was asked for */

  mark(group) {
    this.chosen = group;
    const grouped = group >= 0 && this.graph.views.length > 1;
    this.svg.classList.toggle("choosing", grouped);
    if (!grouped) return;
    this.vertices.forEach((made, i) => made.classList.toggle("chosen", this.group(this.view.vertices[i]) === group));
    this.boxes.forEach(made => made.classList.toggle("chosen", Number(made.dataset.group) === group));
  }

  reveal(group) {
    const parts = this.view.vertices.filter(v => this.group(v) === group);
    if (this.graph.views.length < 2 || !parts.length) return;
    const left = Math.min(...parts.map(v => v[0])), top = Math.min(...parts.map(v => v[1]));
    const right = Math.max(...parts.map(v => v[0] + v[2])), bottom = Math.max(...parts.map(v => v[1] + v[3]));
    this.center(left, top, right - left, bottom - top);
  }

  find(next) {
    const wanted = this.search.value.trim().toLowerCase();
    const matches = m => { const o = this.graph.operators[m]; return o[0].toLowerCase().includes(wanted) || data.texts[o[1]].toLowerCase().includes(wanted); };
    const hits = [];
    this.view.vertices.forEach((vertex, i) => {
      const hit = wanted !== "" && vertex[6].some(matches);
      this.vertices[i].classList.toggle("hit", hit);
      this.vertices[i].classList.remove("here");
      if (hit) hits.push(i);
    });
    this.svg.classList.toggle("searching", wanted !== "");
    this.step = next && hits.length ? (this.step + 1) % hits.length : -1;
    const place = this.step >= 0 ? `${this.step + 1} of ` : "";
    this.root.querySelector(".found").textContent = wanted ? `${place}${hits.length} found` : "";
    if (this.step < 0) return;
    this.vertices[hits[this.step]].classList.add("here");
    this.center(...this.view.vertices[hits[this.step]].slice(0, 4));
  }

  hover(index, event) {
    const near = index < 0 ? [] : this.view.edges.filter(e => e[0] === index || e[1] === index);
    this.near.setAttribute("d", near.map(e => this.path(e)).join(""));
    tip.hidden = index < 0;
    if (index < 0) return;
    showTip(event, this.describe(this.view.vertices[index]));
  }

  describe(vertex) {
    const title = document.createElement("b"), list = document.createElement("dl");
    const first = this.graph.operators[vertex[6][0]], cost = this.cost(vertex[6]);
    const share = this.total ? ` (${(100 * cost / this.total).toFixed(1)} %)` : "";
    const text = number => data.texts[first[number]];
    const isOperator = this.view.name === "operators";
    title.textContent = isOperator ? text(1) : vertex[4];
    const rows = isOperator
      ? [["name", first[0]], ["result", text(3)], ["operands", text(4)], ["attributes", text(5)], ["change", text(CHANGE)], ["rules", text(RULES)]]
      : [["operators", vertex[5]], ["first", first[0]], ["changes", this.changes(vertex[6])], ["rules", this.rules(vertex[6])]];
    rows.push(["cost", seconds(cost) + share]);
    if (first[GROUP] >= 0) rows.push(["sub-graph", String(first[GROUP])]);
    if (first[GROUP] >= 0 && this.view.name !== "sub-graphs") rows.push(["kernel", String(first[KERNEL])]);
    for (const [name, content] of rows.filter(row => row[1] !== "")) {
      list.appendChild(document.createElement("dt")).textContent = name;
      list.appendChild(document.createElement("dd")).textContent = content;
    }
    return [title, list];
  }

  /* How many operators were changed in which way: "2 changed, 1 added". */
  changes(members) {
    const counts = data.kinds.map((kind, n) => [members.filter(m => this.graph.operators[m][KIND] === n).length, kind]);
    return counts.slice(1).filter(each => each[0]).map(each => each.join(" ")).join(", ");
  }

  rules(members) {
    return [...new Set(members.map(m => data.texts[this.graph.operators[m][RULES]]).filter(text => text))].join("; ");
  }

  /* --- events */

  listen() {
    const actions = {in: () => this.zoom(1.4), out: () => this.zoom(1 / 1.4), fit: () => this.fit(), wide: () => this.widen()};
    for (const button of this.root.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
    this.search.addEventListener("input", () => this.find(false));
    this.search.addEventListener("keydown", event => { if (event.key === "Enter") this.find(true); });
    this.svg.addEventListener("keydown", event => this.key(event));
    this.svg.addEventListener("wheel", event => this.wheel(event), {passive: false});
    this.point();
  }

  widen() {
    const wide = this.root.classList.toggle("wide");
    this.root.parentElement.classList.toggle("one", wide);
    this.root.querySelector("[data-do=wide]").setAttribute("aria-pressed", wide);
    this.fit();
  }

  key(event) {
    const by = 60, moves = {ArrowLeft: [by, 0], ArrowRight: [-by, 0], ArrowUp: [0, by], ArrowDown: [0, -by]};
    if (moves[event.key]) this.move(this.x + moves[event.key][0], this.y + moves[event.key][1], this.scale);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") { choose(-1); this.svg.blur(); }
    else return;
    event.preventDefault();
  }

  /* The wheel scrolls the page until the graph was clicked. */
  wheel(event) {
    if (!event.ctrlKey && document.activeElement !== this.svg) return;
    event.preventDefault();
    const frame = this.svg.getBoundingClientRect();
    this.zoom(Math.exp(-event.deltaY * 0.0016), event.clientX - frame.left, event.clientY - frame.top);
  }

  point() {
    const down = new Map();
    let travelled = 0;
    this.svg.addEventListener("pointerdown", event => {
      if (!down.size) travelled = 0;
      down.set(event.pointerId, event);
    });
    this.svg.addEventListener("pointermove", event => {
      const last = down.get(event.pointerId);
      if (!last) { this.hover(this.indexOf(event.target), event); return; }
      travelled += Math.hypot(event.clientX - last.clientX, event.clientY - last.clientY);
      if (travelled > 4) this.svg.setPointerCapture(event.pointerId);
      this.svg.classList.add("dragging");
      this.drag(down, event, last);
      down.set(event.pointerId, event);
    });
    for (const name of ["pointerup", "pointercancel"]) this.svg.addEventListener(name, event => {
      down.delete(event.pointerId);
      this.svg.classList.remove("dragging");
    });
    this.svg.addEventListener("pointerleave", event => this.hover(-1, event));
    this.svg.addEventListener("click", event => { if (travelled <= 4) this.click(event); });
    this.svg.addEventListener("dblclick", event => this.open(event));
  }

  drag(down, event, last) {
    const other = [...down.values()].find(e => e.pointerId !== event.pointerId);
    this.hover(-1, event);
    if (!other) { this.move(this.x + event.clientX - last.clientX, this.y + event.clientY - last.clientY, this.scale); return; }
    const apart = e => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY);
    const frame = this.svg.getBoundingClientRect();
    this.zoom(apart(event) / Math.max(1, apart(last)), (event.clientX + other.clientX) / 2 - frame.left, (event.clientY + other.clientY) / 2 - frame.top);
  }

  indexOf(target) {
    const found = target.closest(".vertex");
    return found ? Number(found.dataset.index) : -1;
  }

  groupAt(target) {
    const index = this.indexOf(target), box = target.closest(".box");
    return index >= 0 ? this.group(this.view.vertices[index]) : box ? Number(box.dataset.group) : -1;
  }

  click(event) {
    this.svg.focus({preventScroll: true});
    choose(this.groupAt(event.target));
  }

  open(event) {
    const group = this.groupAt(event.target);
    if (group < 0 || this.graph.views.length < 2) return;
    this.show(this.graph.views.at(-1));
    choose(group);
    this.reveal(group);
  }
}

/* --- the page */

function choose(group) {
  for (const viewer of viewers) viewer.mark(group);
  for (const made of document.querySelectorAll("[data-tip][data-group]"))
    made.classList.toggle("chosen", Number(made.dataset.group) === group);
  for (const row of document.querySelectorAll("tr[data-group]")) {
    const selected = Number(row.dataset.group) === group;
    row.classList.toggle("selected", selected);
    if (selected) row.closest(".scroll").scrollTop = row.offsetTop - 60;
  }
}

function sortBy(button) {
  const heading = button.parentElement, table = heading.closest("table"), column = heading.cellIndex;
  const falling = heading.getAttribute("aria-sort") !== "descending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => a === "" || isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  const rows = [...table.tBodies[0].rows].sort((a, b) => (falling ? -1 : 1) * compare(value(a), value(b)));
  table.tBodies[0].append(...rows);
}

for (const root of document.querySelectorAll(".viewer")) viewers.push(new Viewer(root));
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sortBy(button));
for (const row of document.querySelectorAll("tr[data-group]")) row.addEventListener("click", () => {
  choose(Number(row.dataset.group));
  for (const viewer of viewers) viewer.reveal(Number(row.dataset.group));
});
for (const made of document.querySelectorAll("[data-tip]")) {
  const lines = made.dataset.tip.split("\n").map((line, n) => {
    const shown = document.createElement(n ? "div" : "b");
    shown.textContent = line;
    return shown;
  });
  made.addEventListener("pointermove", event => showTip(event, lines));
  made.addEventListener("pointerleave", () => { tip.hidden = true; });
  if (made.dataset.group) made.addEventListener("click", () => choose(Number(made.dataset.group)));
}
