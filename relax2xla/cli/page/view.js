"use strict";
// The graph is drawn on a canvas: layers are found by bisection, so that a frame costs what is seen.
const D = JSON.parse(document.getElementById("data").textContent);
const NODE = 0, GROUP = 1, IN = 2, OUT = 3, BEND = 4;
const [LABEL, KIND, HOME, NAME, SOURCE, INFO, WEIGHTS, RELAX, HLO, LOCAL] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const GAP_X = 18, GAP_Y = 46, HEAD = 26, PAD = 14, SPAN = 12, SWEEPS = 4, AT_FIRST = 60;
// So many kinds of values are told below what makes them: as many as there is room for.
const LABELS = 3;
// At first text is drawn at this part of its size where the whole would be smaller.
const LEGIBLE = 0.9;
const SMALLEST = 1e-5;
const FONTS = { title: "600 12.5px system-ui, sans-serif", sub: "11px system-ui, sans-serif", head: "600 12px system-ui, sans-serif", edge: "10.5px system-ui, sans-serif" };
const COLOURS = {
  input: "#2b8a3e", output: "#2b8a3e", product: "#1c7ed6", reduce: "#9c36b5", move: "#868e96",
  control: "#c92a2a", other: "#e67700",
};
const MEANING = {
  input: "inputs, outputs", product: "products, convolutions, attention", reduce: "sums, norms, pools",
  move: "reshapes, slices, gathers", control: "calls, loops, branches", other: "element by element, and others",
};
const HOT = "#e03131", CALM = "#1098ad";
const $ = (id) => document.getElementById(id);
const canvas = $("canvas"), context = canvas.getContext("2d");
const opened = new Set();
let root = D.roots.length ? D.roots[0] : -1, view = { x: 0, y: 0, zoom: 1 }, chosen = null;
let matches = new Set(), pending = false, drawn = 0, hovered = null;

// -- what there is -------------------------------------------------------------------------------
const counts = D.groups.map(() => 0), users = D.nodes.map(() => []), makers = D.nodes.map(() => []);
for (const n of D.nodes) for (let g = n[HOME]; g >= 0; g = D.groups[g].u) counts[g]++;
for (const g of D.groups) {
  g.ports = new Map();
  g.i.forEach(([kind, of], k) => { if (kind === IN || kind === OUT) g.ports.set(kind + ":" + of, k); });
  for (const [, dst, value] of g.e) if (g.i[dst][0] === NODE) {
    users[value].push(g.i[dst][1]);
    makers[g.i[dst][1]].push(value);
  }
}
const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
const shape = (info) => info.slice(info.indexOf(" ") + 1);
// Colour by time or error: [how strong, in words], of an operator or of a closed module.
const heatOf = (kind, of) => D.heat ? D.heat[kind === NODE ? "nodes" : "groups"][of] : undefined;
// What is below the limit of a scale is within what is tolerated, and has a colour of its own.
const hotOrCalm = (found) => D.heat.limit && found[0] <= D.heat.limit ? CALM : HOT;
const alphaOf = (found) => D.heat.limit ? (found[0] <= D.heat.limit ? 0.5 * found[0] / D.heat.limit : 0.35 + 0.45 * found[0]) : 0.8 * found[0];
function glow(kind, of) {
  const found = heatOf(kind, of);
  if (!found) return;
  context.globalAlpha = alphaOf(found); context.fillStyle = hotOrCalm(found); context.fill(); context.globalAlpha = 1;
}
function subtitle(n) {
  if (n.sub === undefined) {
    const sizes = n[WEIGHTS].slice(0, 2).map((w) => shape(D.weights[w].info)).join(", ") + (n[WEIGHTS].length > 2 ? ", …" : "");
    const name = n[LOCAL];
    n.sub = n[KIND] === "input" || n[KIND] === "output" ? D.infos[n[INFO]] : [name.length > 28 ? "…" + name.slice(-27) : name, sizes].filter(Boolean).join("  ");
  }
  return n.sub;
}
const measured = new Map();
function widthOf(text, font) {
  let found = measured.get(font + text);
  if (found === undefined) {
    context.font = font;
    found = context.measureText(text).width;
    measured.set(font + text, found);
  }
  return found;
}
function sizeOf([kind, of]) {
  if (kind === NODE) {
    const n = D.nodes[of], sub = subtitle(n);
    const long = Math.max(widthOf(cut(n[LABEL], 34), FONTS.title), widthOf(cut(sub, 46), FONTS.sub));
    return [Math.max(64, long + 24), sub ? 42 : 30];
  }
  if (kind === GROUP) {
    const g = D.groups[of], head = widthOf("+ " + cut(D.groups[of].n, 34), FONTS.title);
    if (opened.has(of)) { place(of); return [Math.max(g.width + 2 * PAD, head + 30), g.height + HEAD + 2 * PAD]; }
    return [Math.max(120, head + 34), 46];
  }
  return kind === BEND ? [6, 30] : [10, 4];
}

// -- coordinates (relax2xla/cli/page/layout.py has the same in Python) ------------------------------
function spread(wanted, widths) {
  let total = 0;
  const offsets = widths.map((w, i) => total += i ? (widths[i - 1] + w) / 2 + GAP_X : 0), blocks = [];
  wanted.forEach((want, i) => {
    let wish = want - offsets[i], count = 1;
    while (blocks.length && blocks.at(-1)[0] / blocks.at(-1)[1] > wish / count) {
      const [more, n] = blocks.pop();
      wish += more; count += n;
    }
    blocks.push([wish, count]);
  });
  const places = [];
  for (const [wish, n] of blocks) for (let k = 0; k < n; k++) places.push(wish / n + offsets[places.length]);
  return places;
}
function place(at) {
  const g = D.groups[at];
  if (g.placed) return;
  const sizes = g.i.map(sizeOf), up = g.i.map(() => []), down = g.i.map(() => []);
  for (const [src, dst, , , back, bends] of g.e) {
    if (back) continue;
    const chain = [src, ...bends, dst];
    for (let k = 1; k < chain.length; k++) { down[chain[k - 1]].push(chain[k]); up[chain[k]].push(chain[k - 1]); }
  }
  const xs = g.i.map(() => 0), ys = g.i.map(() => 0);
  let y = 0;
  g.tops = []; g.row = g.i.map(() => 0);
  g.l.forEach((row, r) => {
    let total = GAP_X * (row.length - 1), height = 0;
    for (const i of row) total += sizes[i][0];
    let x = -total / 2;
    for (const i of row) {
      xs[i] = x + sizes[i][0] / 2; ys[i] = y; g.row[i] = r;
      x += sizes[i][0] + GAP_X;
      height = Math.max(height, sizes[i][1]);
    }
    g.tops.push([y, y + height]);
    for (const i of row) if (g.i[i][0] === BEND) sizes[i] = [6, height];
    y += height + GAP_Y;
  });
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const near = sweep % 2 ? down : up;
    for (const row of sweep % 2 ? g.l.toReversed() : g.l) {
      const wanted = row.map((i) => near[i].length ? near[i].reduce((s, k) => s + xs[k], 0) / near[i].length : xs[i]);
      const got = spread(wanted, row.map((i) => sizes[i][0]));
      row.forEach((i, k) => xs[i] = got[k]);
    }
  }
  let left = 0, right = 0;
  xs.forEach((x, i) => { left = Math.min(left, x - sizes[i][0] / 2); right = Math.max(right, x + sizes[i][0] / 2); });
  g.boxes = g.i.map((_, i) => [xs[i] - (left + right) / 2, ys[i], ...sizes[i]]);
  g.width = right - left; g.height = Math.max(0, y - GAP_Y);
  g.byRow = g.l.map(() => []); g.far = [];
  for (const e of g.e) (g.row[e[1]] - g.row[e[0]] > SPAN || e[4] ? g.far : g.byRow[g.row[e[0]]]).push(e);
  g.labels = labelsOf(g);
  g.placed = true;
}
// What each item gives: texts, each once, and the values that have it.
function labelsOf(g) {
  const made = g.i.map(() => []);
  for (const [src, , value, info] of g.e) {
    if (!D.infos[info] || g.i[src][0] === IN) continue;
    const same = made[src].find((label) => label.text === D.infos[info]);
    if (same) same.values.add(value);
    else made[src].push({ text: D.infos[info], values: new Set([value]) });
  }
  return made;
}
function forget(at) { for (let g = at; g >= 0; g = D.groups[g].u) D.groups[g].placed = false; }
function toggle(at, open = !opened.has(at)) {
  if (open) opened.add(at); else opened.delete(at);
  forget(at);
}
// Where the inside of a group begins, from the middle of its upper edge.
const inside = (x, y) => [x, y + HEAD + PAD];
function origin(at) {
  if (at === root || D.groups[at].u < 0) return [0, 0];
  const up = D.groups[at].u, [x, y] = origin(up);
  place(up);
  const b = D.groups[up].boxes[D.groups[up].i.findIndex(([kind, of]) => kind === GROUP && of === at)];
  return inside(x + b[0], y + b[1]);
}

// -- drawing --------------------------------------------------------------------------------------
let theme = {};
function colours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "front", "text", "faint", "line", "mark"]) theme[name] = style.getPropertyValue("--" + name).trim();
}
function draw() {
  pending = false;
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, w, h);
  if (root < 0) return;
  context.translate(w / 2 + view.x, view.y);
  context.scale(view.zoom, view.zoom);
  const seen = { left: (-w / 2 - view.x) / view.zoom, right: (w / 2 - view.x) / view.zoom, top: -view.y / view.zoom, bottom: (h - view.y) / view.zoom };
  place(root);
  drawn = 0;
  drawGroup(root, 0, 0, seen);
  document.documentElement.dataset.drawn = drawn;
  drawMap(w, h, ratio);
}
// The whole graph in a strip at the right, each direction to its own scale, where not all is seen.
const MAP = 96;
let map = null, mapBox = null;
function drawMap(w, h, ratio) {
  const g = D.groups[root];
  mapBox = null;
  if (w < 500 || (g.height * view.zoom < h * 1.02 && g.width * view.zoom < w * 1.02)) return;
  const tall = Math.min(h - 24, Math.max(80, MAP * g.height / Math.max(1, g.width)));
  mapBox = { x: w - MAP - 12, y: 12, w: MAP, h: tall, sx: MAP / (g.width || 1), sy: tall / (g.height || 1) };
  if (!map || map.of !== g || map.boxes !== g.boxes || map.tall !== tall || map.ratio !== ratio || map.matches !== matches || map.back !== theme.back) {
    const image = document.createElement("canvas");
    image.width = MAP * ratio; image.height = tall * ratio;
    const c = image.getContext("2d");
    c.scale(ratio, ratio); c.translate(MAP / 2, 0); c.scale(mapBox.sx, mapBox.sy);
    const waiting = [[root, 0, 0]], least = [1.5 / mapBox.sx, 1 / mapBox.sy];
    while (waiting.length) {
      const [at, ox, oy] = waiting.pop(), group = D.groups[at];
      group.i.forEach(([kind, of], i) => {
        if (kind > GROUP) return;
        const [x, y, bw, bh] = group.boxes[i], open = kind === GROUP && opened.has(of);
        if (open) { waiting.push([of, ...inside(x + ox, y + oy)]); c.fillStyle = theme.faint; c.globalAlpha = 0.1; }
        else tint(c, kind, of);
        const tw = Math.max(bw, least[0]), th = Math.max(bh, least[1]);
        c.fillRect(x + ox - tw / 2, y + oy, tw, th);
      });
    }
    map = { of: g, boxes: g.boxes, tall, ratio, matches, back: theme.back, image };
  }
  const m = mapBox;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 0.92; context.fillStyle = theme.front;
  context.fillRect(m.x - 4, m.y - 4, m.w + 8, m.h + 8);
  context.globalAlpha = 1; context.strokeStyle = theme.line; context.lineWidth = 1;
  context.strokeRect(m.x - 4, m.y - 4, m.w + 8, m.h + 8);
  context.drawImage(map.image, m.x, m.y, m.w, m.h);
  const left = Math.max(0, m.w / 2 + (-w / 2 - view.x) / view.zoom * m.sx), right = Math.min(m.w, m.w / 2 + (w / 2 - view.x) / view.zoom * m.sx);
  const top = Math.max(0, -view.y / view.zoom * m.sy), bottom = Math.min(m.h, (h - view.y) / view.zoom * m.sy);
  if (right <= left || bottom <= top) return;
  context.strokeStyle = theme.mark; context.lineWidth = 1.5;
  context.strokeRect(m.x + left, m.y + top, right - left, Math.max(4, bottom - top));
}
const onMap = (x, y) => mapBox && x >= mapBox.x - 4 && x <= mapBox.x + mapBox.w + 4 && y >= mapBox.y - 4 && y <= mapBox.y + mapBox.h + 4;
function jump(x, y) {
  view.x = -(x - mapBox.x - mapBox.w / 2) / mapBox.sx * view.zoom;
  view.y = canvas.clientHeight / 2 - (y - mapBox.y) / mapBox.sy * view.zoom;
  redraw();
}
function redraw() { if (!pending) { pending = true; requestAnimationFrame(draw); } }
function rows(g, top, bottom) {
  let low = 0, high = g.tops.length;
  while (low < high) { const mid = (low + high) >> 1; if (g.tops[mid][1] < top) low = mid + 1; else high = mid; }
  let end = low;
  while (end < g.tops.length && g.tops[end][0] <= bottom) end++;
  return [low, end];
}
function port(g, item, kind, value) {
  const [x, y, , height] = g.boxes[item], [what, of] = g.i[item];
  if (what === GROUP && opened.has(of)) {
    const inner = D.groups[of], at = inner.ports.get(kind + ":" + value);
    if (at !== undefined) return [x + inner.boxes[at][0], kind === OUT ? y + height : y];
  }
  return [x, kind === OUT ? y + height : y];
}
function curve(x1, y1, x2, y2) {
  const bend = Math.max(12, Math.min(60, Math.abs(y2 - y1) / 2));
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
}
function drawEdge(g, e, ox, oy, seen) {
  const [src, dst, value, , back, bends] = e;
  const marked = chosen !== null && chosen.kind === NODE && (value === chosen.of || (g.i[dst][0] === NODE && g.i[dst][1] === chosen.of));
  let [x, y] = port(g, src, OUT, value);
  const [ex, ey] = port(g, dst, IN, value);
  if (Math.min(y, ey) + oy > seen.bottom || Math.max(y, ey) + oy < seen.top) return;
  const far = !bends.length && g.row[dst] - g.row[src] > SPAN;
  context.beginPath();
  context.strokeStyle = marked ? theme.mark : theme.faint;
  context.lineWidth = marked ? 2 : 1;
  context.globalAlpha = marked ? 1 : far ? 0.2 : 0.75;
  context.setLineDash(back ? [5, 4] : []);
  if (g.i[src][0] === IN) y -= HEAD + PAD;
  for (const i of bends) {
    const [bx, by, , bh] = g.boxes[i];
    curve(x + ox, y + oy, bx + ox, by + oy);
    context.lineTo(bx + ox, by + bh + oy);
    x = bx; y = by + bh;
  }
  const end = g.i[dst][0] === OUT ? ey + PAD : ey;
  curve(x + ox, y + oy, ex + ox, end + oy);
  context.stroke();
  context.setLineDash([]);
  if (g.i[dst][0] !== OUT && view.zoom > 0.25) {
    context.beginPath();
    context.fillStyle = context.strokeStyle;
    context.moveTo(ex + ox, ey + oy); context.lineTo(ex + ox - 3.5, ey + oy - 7); context.lineTo(ex + ox + 3.5, ey + oy - 7);
    context.fill();
  }
  context.globalAlpha = 1;
}
function drawLabels(g, item, ox, oy) {
  const all = g.labels[item], few = all.length > LABELS ? all.slice(0, LABELS - 1) : all;
  const lines = few.map((label) => [label, label.text + (label.values.size > 1 ? " · " + label.values.size + " values" : "")]);
  if (few !== all) lines.push([all[few.length], "… " + (all.length - few.length) + " more"]);
  lines.forEach(([label, text], k) => {
    const first = label.values.values().next().value, [x, y] = port(g, item, OUT, first);
    const marked = chosen !== null && chosen.kind === NODE && (label.values.has(chosen.of) || makers[chosen.of].some((v) => label.values.has(v)));
    const width = widthOf(text, FONTS.edge);
    context.font = FONTS.edge;
    context.fillStyle = theme.back; context.globalAlpha = 0.85;
    context.fillRect(x + ox + 4, y + oy + 3 + 13 * k, width + 4, 13);
    context.globalAlpha = 1; context.fillStyle = marked ? theme.mark : theme.faint; context.textAlign = "left";
    context.fillText(text, x + ox + 6, y + oy + 13 + 13 * k);
  });
}
function drawGroup(at, ox, oy, seen) {
  const g = D.groups[at];
  const [first, end] = rows(g, seen.top - oy - 80, seen.bottom - oy + 80);
  // Boxes of open modules first, then edges, then what stands on them.
  for (let r = first; r < end; r++) for (const i of g.l[r]) if (g.i[i][0] === GROUP && opened.has(g.i[i][1])) drawFrame(g.i[i][1], g.boxes[i], ox, oy, seen);
  if (view.zoom > 0.04) {
    for (let r = Math.max(0, first - SPAN); r < end; r++) for (const e of g.byRow[r]) drawEdge(g, e, ox, oy, seen);
    for (const e of g.far) if (g.far.length < 2000 || (chosen && e[2] === chosen.of)) drawEdge(g, e, ox, oy, seen);
  }
  if (view.zoom > 0.55) for (let r = first; r < end; r++) for (const i of g.l[r]) drawLabels(g, i, ox, oy);
  for (let r = first; r < end; r++) for (const i of g.l[r]) {
    const [x, y, w, h] = g.boxes[i], [kind, of] = g.i[i];
    if (x + ox + w / 2 < seen.left || x + ox - w / 2 > seen.right) continue;
    if (kind === NODE) drawNode(of, x + ox, y + oy, w, h);
    else if (kind === GROUP && opened.has(of)) drawGroup(of, ...inside(x + ox, y + oy), seen);
    else if (kind === GROUP) drawClosed(of, x + ox, y + oy, w, h);
  }
}
// What would be smaller than a point is drawn as one, in its colour.
const POINT = 2;
function speck(kind, of, x, y, w, h) {
  if (h * view.zoom > POINT) return false;
  const width = Math.max(w, POINT / view.zoom);
  tint(context, kind, of);
  context.fillRect(x - width / 2, y, width, POINT / view.zoom);
  context.globalAlpha = 1;
  return true;
}
// The one colour of what is too small for a border.
function tint(c, kind, of) {
  const found = heatOf(kind, of);
  if (kind === NODE && matches.has(of)) { c.fillStyle = theme.mark; c.globalAlpha = 1; }
  else if (D.heat) { c.fillStyle = found ? hotOrCalm(found) : theme.faint; c.globalAlpha = found ? Math.max(0.25, alphaOf(found)) : 0.25; }
  else { c.fillStyle = kind === NODE ? COLOURS[D.nodes[of][KIND]] : theme.faint; c.globalAlpha = 0.7; }
}
function box(x, y, w, h, radius) { context.beginPath(); context.roundRect(x - w / 2, y, w, h, radius); }
function drawFrame(at, [x, y, w, h], ox, oy, seen) {
  if (x + ox + w / 2 < seen.left || x + ox - w / 2 > seen.right) return;
  const isChosen = chosen && chosen.kind === GROUP && chosen.of === at;
  box(x + ox, y + oy, w, h, 8);
  context.fillStyle = theme.faint; context.globalAlpha = 0.05; context.fill(); context.globalAlpha = 1;
  context.strokeStyle = isChosen ? theme.mark : theme.line; context.lineWidth = isChosen ? 2 : 1; context.stroke();
  if (view.zoom < 0.2) return;
  context.fillStyle = theme.faint; context.textAlign = "left"; context.font = FONTS.head;
  context.fillText("− " + cut(D.groups[at].n, 34), x + ox - w / 2 + 9, y + oy + 17);
}
function drawClosed(at, x, y, w, h) {
  drawn++;
  if (speck(GROUP, at, x, y, w, h)) return;
  const isChosen = chosen && chosen.kind === GROUP && chosen.of === at, isUnder = hovered && hovered.kind === GROUP && hovered.of === at;
  box(x, y + 4, w - 6, h, 8); context.fillStyle = theme.line; context.fill();
  box(x, y, w, h, 8); context.fillStyle = theme.front; context.fill(); glow(GROUP, at);
  context.strokeStyle = isChosen ? theme.mark : theme.faint; context.lineWidth = isChosen || isUnder ? 2.5 : 1.2; context.stroke();
  if (view.zoom < 0.2) return;
  context.textAlign = "center"; context.fillStyle = theme.text; context.font = FONTS.title;
  context.fillText("+ " + cut(D.groups[at].n, 34), x, y + 19);
  context.fillStyle = heatOf(GROUP, at) ? theme.text : theme.faint; context.font = FONTS.sub;
  context.fillText(counts[at] + " operators", x, y + 36);
}
function drawNode(at, x, y, w, h) {
  drawn++;
  if (speck(NODE, at, x, y, w, h)) return;
  const n = D.nodes[at], isChosen = chosen && chosen.kind === NODE && chosen.of === at, isUnder = hovered && hovered.kind === NODE && hovered.of === at, round = n[KIND] === "input" || n[KIND] === "output";
  box(x, y, w, h, round ? h / 2 : 5);
  context.fillStyle = theme.front; context.fill();
  if (D.heat && !matches.has(at)) glow(NODE, at);
  else { context.globalAlpha = matches.has(at) ? 0.45 : 0.14; context.fillStyle = matches.has(at) ? theme.mark : COLOURS[n[KIND]]; context.fill(); }
  context.globalAlpha = 1; context.strokeStyle = isChosen ? theme.mark : COLOURS[n[KIND]]; context.lineWidth = isChosen ? 3 : isUnder ? 2.5 : 1.2; context.stroke();
  if (view.zoom < 0.25) return;
  const sub = subtitle(n);
  context.textAlign = "center"; context.fillStyle = theme.text; context.font = FONTS.title;
  context.fillText(cut(n[LABEL], 34), x, y + (sub ? 18 : 19.5));
  if (!sub) return;
  context.fillStyle = matches.has(at) || heatOf(NODE, at) ? theme.text : theme.faint; context.font = FONTS.sub;
  context.fillText(cut(sub, 46), x, y + 33);
}

// -- moving ---------------------------------------------------------------------------------------
// Everything, however small; or, from the top, what can be read.
function fit(least = SMALLEST) {
  if (root < 0) return;
  place(root);
  const g = D.groups[root], w = canvas.clientWidth, h = canvas.clientHeight;
  const whole = Math.min(1.1, (w - 40) / (g.width || 1), (h - 40) / (g.height || 1));
  view.zoom = Math.max(whole, least);
  view.x = 0;
  view.y = whole < view.zoom ? 20 : Math.max(20, (h - g.height * view.zoom) / 2);
  if (least >= LEGIBLE && g.width * view.zoom > w) {
    const [first] = g.l[0] || [];
    if (first !== undefined) view.x = -g.boxes[first][0] * view.zoom;
  }
  redraw();
}
const home = () => fit(LEGIBLE);
function boxOf(kind, of) {
  const home = kind === NODE ? D.nodes[of][HOME] : D.groups[of].u;
  for (let g = home; g >= 0; g = D.groups[g].u) if (D.groups[g].u >= 0 && !opened.has(g)) toggle(g, true);
  if (home < 0) return [0, 0, 0, 0];
  const [x, y] = origin(home);
  place(home);
  const b = D.groups[home].boxes[D.groups[home].i.findIndex(([k, o]) => k === kind && o === of)];
  return [x + b[0], y + b[1], b[2], b[3]];
}
function show(kind, of, still) {
  if (!(kind === NODE ? D.nodes : D.groups)[of]) return; // a program without any
  let top = kind === NODE ? D.nodes[of][HOME] : of;
  while (D.groups[top].u >= 0) top = D.groups[top].u;
  root = top; $("function").value = String(D.roots.indexOf(top));
  chosen = { kind, of };
  details();
  const [x, y, , h] = boxOf(kind, of);
  if (!still) {
    view.zoom = Math.max(view.zoom, 0.7);
    view.x = -x * view.zoom; view.y = canvas.clientHeight / 2 - (y + Math.min(h, 60) / 2) * view.zoom;
  }
  redraw();
}
function hit(px, py) {
  let x = (px - canvas.clientWidth / 2 - view.x) / view.zoom, y = (py - view.y) / view.zoom, at = root, found = null;
  while (at >= 0) {
    const g = D.groups[at], [first, end] = rows(g, y, y);
    let next = -1;
    for (let r = first; r < end; r++) for (const i of g.l[r]) {
      const [bx, by, bw, bh] = g.boxes[i], [kind, of] = g.i[i];
      if (kind > GROUP || Math.abs(x - bx) > bw / 2 || y < by || y > by + bh) continue;
      found = { kind, of, head: kind === GROUP && (!opened.has(of) || y < by + HEAD) };
      if (kind === GROUP && opened.has(of) && !found.head) { next = of; const [ix, iy] = inside(bx, by); x -= ix; y -= iy; }
      r = end; break;
    }
    at = next;
  }
  return found;
}
function zoomAt(px, py, factor) {
  const zoom = Math.min(3, Math.max(SMALLEST, view.zoom * factor)), k = zoom / view.zoom, mid = canvas.clientWidth / 2;
  view.x = px - mid - (px - mid - view.x) * k; view.y = py - (py - view.y) * k; view.zoom = zoom;
  redraw();
}
// Opens or closes a module without moving its upper edge on the screen.
function flip(at) {
  const before = boxOf(GROUP, at);
  toggle(at);
  const after = boxOf(GROUP, at);
  view.x += (before[0] - after[0]) * view.zoom; view.y += (before[1] - after[1]) * view.zoom;
  redraw();
}
function all(open) {
  D.groups.forEach((g, i) => { g.placed = false; if (g.u >= 0) { if (open) opened.add(i); else opened.delete(i); } });
  home();
}
let held = null;
canvas.addEventListener("pointerdown", (e) => {
  held = { x: e.clientX, y: e.clientY, moved: false, onMap: onMap(e.offsetX, e.offsetY) };
  canvas.setPointerCapture(e.pointerId);
  under(null);
  if (held.onMap) jump(e.offsetX, e.offsetY);
  else canvas.style.cursor = "grabbing";
});
// What the pointer is over is told beside it: names are cut in boxes, and small when all is seen.
function under(found, x = 0, y = 0) {
  const tip = $("tip");
  if (!(found && hovered && found.kind === hovered.kind && found.of === hovered.of)) {
    hovered = found;
    tip.hidden = !found;
    canvas.style.cursor = found ? "pointer" : "";
    if (found) {
      const n = D.nodes[found.of], g = D.groups[found.of], heat = heatOf(found.kind, found.of);
      const lines = found.kind === NODE ? [n[SOURCE] || n[NAME], D.infos[n[INFO]]] : [g.p, counts[found.of] + " operators; " + (opened.has(found.of) ? "closes" : "opens") + " on the second click"];
      tip.replaceChildren(make("b", found.kind === NODE ? n[LABEL] : D.groups[found.of].n), ...[...lines, heat ? heat[1] : ""].filter(Boolean).map((line) => make("div", line)));
    }
    redraw();
  }
  if (!found) return;
  const w = canvas.clientWidth, left = canvas.offsetLeft;
  tip.style.left = Math.max(0, Math.min(x + 14, w - tip.offsetWidth - 8)) + left + "px";
  tip.style.top = (y + 22 + tip.offsetHeight > canvas.clientHeight ? y - tip.offsetHeight - 10 : y + 18) + "px";
}
canvas.addEventListener("pointerleave", () => under(null));
canvas.addEventListener("pointermove", (e) => {
  if (!held) {
    const at = onMap(e.offsetX, e.offsetY) ? null : hit(e.offsetX, e.offsetY);
    under(at && (at.kind === NODE || at.head) ? at : null, e.offsetX, e.offsetY);
    return;
  }
  if (held.onMap) { if (mapBox) jump(e.offsetX, e.offsetY); return; }
  const dx = e.clientX - held.x, dy = e.clientY - held.y;
  if (!held.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
  held = { ...held, x: e.clientX, y: e.clientY, moved: true };
  view.x += dx; view.y += dy;
  redraw();
});
canvas.addEventListener("pointerup", (e) => {
  const click = held && !held.moved && !held.onMap;
  held = null; canvas.style.cursor = "";
  if (!click) return;
  const at = hit(e.offsetX, e.offsetY);
  if (at && at.kind === GROUP && chosen && chosen.kind === GROUP && chosen.of === at.of && at.head) flip(at.of);
  chosen = at ? { kind: at.kind, of: at.of } : null;
  details(); redraw();
});
canvas.addEventListener("dblclick", (e) => { const at = hit(e.offsetX, e.offsetY); if (at && at.kind === NODE) show(NODE, at.of); });
canvas.addEventListener("wheel", (e) => {
  e.preventDefault();
  if (e.ctrlKey || !e.shiftKey) zoomAt(e.offsetX, e.offsetY, Math.exp(-e.deltaY * 0.0015));
  else { view.x -= e.deltaX + e.deltaY; redraw(); }
}, { passive: false });
function step(list) { if (list.length) show(NODE, list[0]); }
const FIRST_KEYS = { "/": "search", h: "beginning", f: "everything", e: "open all", c: "close all", w: "weights", "?": "all keys" };
const KEYS = {
  "/": ["search", () => $("search").focus()],
  f: ["show everything", () => fit()],
  h: ["back to the beginning", () => home()],
  e: ["open all modules", () => all(true)],
  c: ["close all modules", () => all(false)],
  w: ["all weights", () => listWeights()],
  t: ["by time or error, the largest first", () => hottest()],
  Enter: ["open or close the chosen module", () => { if (chosen && chosen.kind === GROUP && D.groups[chosen.of].u >= 0) flip(chosen.of); }],
  j: ["to the first operator that uses the result", () => { if (chosen && chosen.kind === NODE) step(users[chosen.of]); }],
  k: ["to what makes the first input", () => { if (chosen && chosen.kind === NODE) step(makers[chosen.of]); }],
  n: ["to the next operator", () => show(NODE, chosen && chosen.kind === NODE ? Math.min(D.nodes.length - 1, chosen.of + 1) : 0)],
  p: ["to the operator before", () => show(NODE, chosen && chosen.kind === NODE ? Math.max(0, chosen.of - 1) : 0)],
  u: ["to the module around", () => { if (!chosen) return; const up = chosen.kind === NODE ? D.nodes[chosen.of][HOME] : D.groups[chosen.of].u; if (up >= 0 && D.groups[up].u >= 0) show(GROUP, up); }],
  "+": ["nearer", () => zoomAt(canvas.clientWidth / 2, canvas.clientHeight / 2, 1.25)],
  "-": ["farther", () => zoomAt(canvas.clientWidth / 2, canvas.clientHeight / 2, 0.8)],
  ArrowLeft: ["move", () => { view.x += 80; redraw(); }], ArrowRight: ["move", () => { view.x -= 80; redraw(); }],
  ArrowUp: ["move", () => { view.y += 80; redraw(); }], ArrowDown: ["move", () => { view.y -= 80; redraw(); }],
  Escape: ["choose nothing", () => { chosen = null; matches = new Set(); $("search").value = ""; search(""); details(); }],
  "?": ["these keys", () => help()],
};
document.addEventListener("keydown", (e) => {
  if (e.target === $("search")) {
    if (e.key === "Escape") { $("search").blur(); KEYS.Escape[1](); }
    if (e.key === "ArrowDown" && $("left").querySelector("[role=button]")) { e.preventDefault(); $("left").querySelector("[role=button]").focus(); }
    if (e.key === "Enter" && matches.size) { e.preventDefault(); $("search").blur(); show(NODE, matches.values().next().value); }
    return;
  }
  if (e.ctrlKey || e.metaKey || e.altKey || ["SELECT", "BUTTON", "SUMMARY"].includes(e.target.tagName) && e.key === "Enter") return;
  const key = KEYS[e.key === "=" ? "+" : e.key];
  if (!key) return;
  e.preventDefault();
  // The next key is for what was chosen, not for the entry of a list.
  if (e.target !== canvas) canvas.focus({ preventScroll: true });
  key[1]();
});

// -- panels: text nodes only, whatever a name holds -------------------------------------------------
function make(tag, text, ...inner) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  made.append(...inner);
  return made;
}
function table(pairs) {
  return make("table", "", ...pairs.filter(([, v]) => v !== "" && v !== undefined).map(([k, v]) =>
    make("tr", "", make("td", k), v instanceof Element ? make("td", "", v) : make("td", String(v)))));
}
function link(at) {
  const a = make("a", D.nodes[at][LABEL] + "  ");
  a.tabIndex = 0;
  a.addEventListener("click", () => show(NODE, at));
  a.addEventListener("keydown", (e) => { if (e.key === "Enter") show(NODE, at); });
  return a;
}
const links = (list) => list.length ? make("span", "", ...list.slice(0, 20).map(link), list.length > 20 ? "… " + (list.length - 20) + " more" : "") : "";
const number = (v) => v === undefined ? "" : Number.isInteger(v) ? v.toLocaleString("en") : v.toPrecision(5);
function histogram(w) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), bars = w.histogram, most = Math.max(...bars);
  svg.setAttribute("viewBox", "0 0 " + bars.length + " 100"); svg.setAttribute("preserveAspectRatio", "none");
  bars.forEach((n, i) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect"), high = n ? Math.max(1, 100 * n / most) : 0;
    for (const [k, v] of [["x", i + 0.06], ["y", 100 - high], ["width", 0.88], ["height", high]]) bar.setAttribute(k, v);
    svg.append(bar);
  });
  return svg;
}
function weight(at, open) {
  const w = D.weights[at], part = make("details", "", make("summary", "", make("b", w.name + "  "), make("small", w.info)));
  const fill = () => {
    if (part.childElementCount > 1) return;
    part.append(table([["elements", number(w.elements)], ["bytes", bytesOf(w.bytes)], ["min", number(w.min)], ["max", number(w.max)],
      ["mean", number(w.mean)], ["std", number(w.std)], ["zeros", number(w.zeros)], ["NaN, infinite", w.special ? number(w.special) : ""],
      ["read", w.read !== undefined && w.read < w.elements ? "a sample of " + number(w.read) : ""]]));
    if (w.histogram) part.append(histogram(w));
  };
  part.addEventListener("toggle", fill);
  if (open) { part.open = true; fill(); }
  return part;
}
// An operator and its name; a long one by its end, which tells it from its neighbours, and where it stands.
function named(n, label = n[LABEL]) {
  const name = n[SOURCE] || n[NAME], around = D.groups[n[HOME]].u >= 0 ? D.groups[n[HOME]].p : "";
  const made = make("span", "", make("b", label), make("small", "", make("bdi", name)));
  made.className = "named";
  made.title = around && !name.includes(around) ? name + ", in " + around : name;
  return made;
}
// An entry of a list: a button for the keyboard and for those who do not see it.
function entry(act, ...inner) {
  const row = make("div", "", ...inner);
  row.tabIndex = 0; row.setAttribute("role", "button");
  row.addEventListener("click", () => { for (const other of row.parentElement.children) other.classList.remove("on"); row.classList.add("on"); act(); });
  row.addEventListener("keydown", (e) => {
    const next = e.key === "ArrowDown" ? row.nextElementSibling : e.key === "ArrowUp" ? row.previousElementSibling : null;
    if (e.key === "Enter" || e.key === " ") row.click();
    else if (next && next.tabIndex === 0) next.focus();
    else return;
    e.preventDefault(); e.stopPropagation();
  });
  return row;
}
function bar(found) {
  const made = make("i", "");
  made.className = "bar"; made.style.width = Math.max(1, 100 * found[0]) + "%"; made.style.background = hotOrCalm(found);
  return made;
}
const heatRow = (kind, of) => heatOf(kind, of) ? [[D.heat.title, heatOf(kind, of)[1]]] : [];
function hottest() {
  const left = $("left"), shared = new Map();
  // What operators share stands there once, with all of them.
  for (const [i, found] of Object.entries(D.heat ? D.heat.nodes : {})) {
    if (shared.has(found[2])) shared.get(found[2])[2].add(D.nodes[i][LABEL]);
    else shared.set(found[2], [Number(i), found, new Set([D.nodes[i][LABEL]])]);
  }
  const rows = [...shared.values()].sort((a, b) => b[1][0] - a[1][0]);
  if (!D.heat) { left.replaceChildren(make("small", "No times: they come with relax2xla view MODEL --profile FILE, errors with relax2xla verify MODEL --taps --html FILE.")); return; }
  left.replaceChildren(make("h3", "By " + D.heat.title), make("small", D.heat.remark));
  for (const [i, found, labels] of rows.slice(0, 300)) {
    left.append(entry(() => show(NODE, i), named(D.nodes[i], [...labels].join(", ")), make("small", found[1]), bar(found)));
  }
  if (rows.length > 300) left.append(make("small", "the 300 largest of " + rows.length));
}
const colourDot = (colour) => { const dot = make("i", ""); dot.className = "dot"; dot.style.background = colour; return dot; };
// What is there when nothing is chosen: the program in figures, and what the colours mean.
function overview(right) {
  const kinds = new Map(), labels = new Map();
  let operators = 0;
  for (const n of D.nodes) {
    const kind = n[KIND] === "output" ? "input" : n[KIND];
    kinds.set(kind, (kinds.get(kind) || 0) + 1);
    if (kind === "input") continue;
    operators++;
    labels.set(n[LABEL], (labels.get(n[LABEL]) || 0) + 1);
  }
  const ends = (kind) => root < 0 ? [] : D.groups[root].i.filter(([k, of]) => k === NODE && D.nodes[of][KIND] === kind).map(([, of]) => of);
  const list = (kind) => ends(kind).slice(0, 8).map((of) => {
    const a = link(of);
    a.textContent = cut(D.nodes[of][LABEL], 40);
    return make("div", "", a, make("small", "  " + D.infos[D.nodes[of][INFO]]));
  });
  const more = (kind) => ends(kind).length > 8 ? [make("small", "… " + (ends(kind).length - 8) + " more")] : [];
  right.append(make("h2", D.title), table([["operators", number(operators)], ["modules", number(D.groups.length - D.roots.length)],
    ["weights", D.weights.length ? number(D.weights.length) + ", " + bytesOf(D.weights.reduce((s, w) => s + w.bytes, 0)) : "none"]]));
  if (!operators) right.append(make("p", "The program computes nothing: its results are its inputs or constants."));
  for (const [kind, title] of [["input", "Inputs"], ["output", "Outputs"]]) if (ends(kind).length) right.append(make("h3", title), ...list(kind), ...more(kind));
  right.append(make("h3", "Colours"));
  if (D.heat) {
    const rows = D.heat.limit ? [[CALM, "within the tolerance"], [HOT, "departs"]] : [[HOT, D.heat.title + ": the redder the more"]];
    right.append(...rows.map(([colour, what]) => make("div", "", colourDot(colour), what)));
  }
  if (D.heat) right.append(make("div", "", make("small", "kinds of operators, at their borders")));
  right.append(...Object.keys(MEANING).filter((k) => kinds.has(k)).map((k) => make("div", "", colourDot(COLOURS[k]), MEANING[k] + "  ", make("small", number(kinds.get(k))))));
  if (labels.size) right.append(make("h3", "Operators"), table([...labels].sort((a, b) => b[1] - a[1]).slice(0, 15)));
  right.append(make("h3", "Keys"), make("p", "", ...Object.entries(FIRST_KEYS).map(([k, what]) => make("span", "", make("kbd", k), what))));
}
function bytesOf(n) {
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (n < 1024 || unit === "GiB") return (unit === "bytes" ? n : n.toFixed(1)) + " " + unit;
    n /= 1024;
  }
}
function details() {
  const right = $("right");
  right.replaceChildren();
  right.classList.toggle("idle", !chosen);
  if (!chosen) overview(right);
  if (chosen && chosen.kind === NODE) {
    const n = D.nodes[chosen.of];
    right.append(make("h2", n[LABEL]), table([["name", n[NAME]], ["source", n[SOURCE]], ["gives", D.infos[n[INFO]]], ...heatRow(NODE, chosen.of),
      ["module", D.groups[n[HOME]].p], ["from", links(makers[chosen.of])], ["used by", links(users[chosen.of])]]));
    if (n[WEIGHTS].length) right.append(make("h3", "Weights and constants"), ...n[WEIGHTS].slice(0, 50).map((w, i) => weight(w, i === 0)));
    if (n[RELAX]) right.append(make("h3", "Relax"), make("pre", n[RELAX]));
    if (D.hlo[n[HLO]]) right.append(make("h3", "StableHLO"), make("pre", D.hlo[n[HLO]]));
  } else if (chosen) {
    const g = D.groups[chosen.of], kinds = new Map();
    const list = [chosen.of];
    while (list.length) for (const [kind, of] of D.groups[list.pop()].i) {
      if (kind === GROUP) list.push(of);
      if (kind === NODE) kinds.set(D.nodes[of][LABEL], (kinds.get(D.nodes[of][LABEL]) || 0) + 1);
    }
    right.append(make("h2", D.groups[chosen.of].n), table([["path", g.p], ["operators", counts[chosen.of]], ...heatRow(GROUP, chosen.of)]), make("h3", "Operators"),
      table([...kinds].sort((a, b) => b[1] - a[1]).slice(0, 60)));
    if (g.u >= 0) {
      const button = make("button", opened.has(chosen.of) ? "Close" : "Open");
      button.addEventListener("click", () => { flip(chosen.of); details(); });
      right.append(button);
    }
  }
  if (canvas.clientWidth) redraw();
}
function listWeights() {
  const right = $("right"), bytes = D.weights.reduce((s, w) => s + w.bytes, 0);
  right.classList.remove("idle");
  right.replaceChildren(make("h2", D.weights.length ? D.weights.length + " weights and constants" : "No weights"),
    make("small", D.weights.length ? bytesOf(bytes) : "The program has no arrays of its own; its inputs may be its weights."));
  const order = D.weights.map((_, i) => i).sort((a, b) => D.weights[b].bytes - D.weights[a].bytes);
  right.append(...order.slice(0, 500).map((w) => weight(w, false)));
  if (order.length > 500) right.append(make("small", "the 500 largest"));
}
function help() {
  const seen = new Map();
  for (const [key, [what]] of Object.entries(KEYS)) seen.set(what, (seen.get(what) || []).concat(key));
  $("right").classList.remove("idle");
  $("right").replaceChildren(make("h2", "Keys"), table([...seen].map(([what, keys]) => [keys.join(" "), what])),
    make("h3", "Mouse"), table([["drag", "move"], ["wheel", "nearer, farther"], ["click", "choose; a chosen module opens or closes"], ["strip at the right", "the whole program: go there"]]));
}
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), left = $("left");
  matches = new Set();
  left.replaceChildren();
  if (words.length) {
    for (let i = 0; i < D.nodes.length; i++) {
      const n = D.nodes[i], hay = (n[LABEL] + " " + n[NAME] + " " + n[SOURCE] + " " + D.groups[n[HOME]].p + " " + D.infos[n[INFO]] + " " + n[WEIGHTS].slice(0, 8).map((w) => D.weights[w].name).join(" ")).toLowerCase();
      if (words.every((word) => hay.includes(word))) matches.add(i);
    }
    left.append(make("small", matches.size + " of " + D.nodes.length));
    if (!matches.size) left.append(make("p", "Nothing has all these words in its operator, name, shape or weights."));
    for (const i of [...matches].slice(0, 300)) {
      left.append(entry(() => show(NODE, i), named(D.nodes[i])));
    }
    if (matches.size > 300) left.append(make("small", "the first 300"));
  } else if (D.heat) hottest();
  redraw();
}
let waiting = 0;
$("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => search($("search").value), 120); });
$("expand").addEventListener("click", () => all(true));
$("collapse").addEventListener("click", () => all(false));
$("fit").addEventListener("click", () => fit());
$("weights").addEventListener("click", listWeights);
$("help").addEventListener("click", help);
$("function").addEventListener("change", () => { root = D.roots[Number($("function").value)]; chosen = null; details(); home(); });
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); redraw(); });

// -- beginning --------------------------------------------------------------------------------------
// Modules are opened from the outside to the inside, until as much is seen as one can look at.
function openFew() {
  let seen = root < 0 ? 0 : D.groups[root].i.length, list = root < 0 ? [] : [root];
  while (list.length) {
    const next = [];
    for (const at of list) for (const [kind, of] of D.groups[at].i) if (kind === GROUP && seen + D.groups[of].i.length < AT_FIRST) {
      seen += D.groups[of].i.length; opened.add(of); next.push(of);
    }
    list = next;
  }
}
$("title").textContent = D.title;
D.roots.forEach((r, i) => { const option = make("option", D.groups[r].n); option.value = String(i); $("function").append(option); });
const main = D.roots.findIndex((r) => D.groups[r].n === "main");
if (main >= 0) { root = D.roots[main]; $("function").value = String(main); }
$("function").hidden = D.roots.length < 2;
colours();
openFew();
details();
// #node=12, #search=words, #open=all: places in the graph to link to.
const asked = new URLSearchParams(location.hash.slice(1));
if (asked.get("open") === "all") all(true);
if (D.heat) hottest();
home();
if (asked.get("search")) { $("search").value = asked.get("search"); search(asked.get("search")); }
const node = Number(asked.get("node"));
if (asked.has("node") && node >= 0 && node < D.nodes.length) show(NODE, node);
draw();
document.documentElement.dataset.ready = D.nodes.length;
