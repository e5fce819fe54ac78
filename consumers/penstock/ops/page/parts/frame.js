"use strict";
// What all pages share: the token, how elements are made, and the stream of updates.
const KEY = "penstock-token", SILENT_MS = 5000, AGAIN_MS = 2000;
const $ = (id) => document.getElementById(id);
// A token in the address behind `#` is not sent to anybody, and is removed from the address at once.
// A page that is open already takes it without being loaded again.
function take() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return false;
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
  return true;
}
take();
addEventListener("hashchange", () => { if (take() && !$("ask").hidden) view(); });
const authorization = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: "Bearer " + token } : {};
};
// Texts from outside become text nodes, never markup.
function make(tag, text, name, ...inside) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = String(text);
  if (name) element.className = name;
  element.append(...inside);
  return element;
}
function draw(tag, attributes, ...inside) {
  const element = document.createElementNS($("svg").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}
const known = (n) => n !== null && n !== undefined;
const count = (n) => known(n) ? Math.round(n).toLocaleString("en") : "–";
const rate = (n) => !known(n) ? "–" : n >= 100 ? count(n) :
  n.toLocaleString("en", { maximumFractionDigits: 1 });
const percent = (share, digits = 0) => known(share) ? (100 * share).toFixed(digits) + " %" : "–";
const mib = (n) => rate(n / 1048576) + " MiB";
function lasting(s) {
  if (!known(s)) return "–";
  if (s < 1) return Math.round(1000 * s) + " ms";
  if (s < 90) return s.toFixed(1) + " s";
  return s < 5400 ? Math.round(s / 60) + " min" : (s / 3600).toFixed(1) + " h";
}
const millis = (ms) => known(ms) ? ms < 1000 ? rate(ms) + " ms" : lasting(ms / 1000) : "–";
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
function card(name, value, state, ...below) {
  return make("div", null, "card", make("span", name), make("b", value, state), ...below);
}
// A cell is a text or an element. The name of a column is a text, or [text, class].
function table(caption, names, rows) {
  const head = make("tr");
  for (const name of names) {
    const [text, kind] = Array.isArray(name) ? name : [name, ""], cell = make("th", text, kind);
    cell.scope = "col";
    head.append(cell);
  }
  const body = make("tbody");
  for (const cells of rows) {
    const row = make("tr");
    cells.forEach((cell, at) => {
      const kind = Array.isArray(names[at]) ? names[at][1] : "";
      const made = make(at ? "td" : "th", null, kind);
      if (!at) made.scope = "row";
      made.append(cell instanceof Node ? cell : document.createTextNode(String(cell)));
      row.append(made);
    });
    body.append(row);
  }
  const whole = make("table", null, "", make("caption", caption, "unseen"),
    make("thead", null, "", head), body);
  const scroll = make("div", null, "scroll", whole);
  scroll.tabIndex = 0;
  scroll.role = "region";
  scroll.ariaLabel = caption;
  return scroll;
}
// Builds the content of an element again, but only if the data changed. The element that has the
// focus gets it again, and lists keep their places.
const shown = new WeakMap(), SCROLLED = ".scroll, .letters, .samples";
function put(element, data, build) {
  const text = JSON.stringify(data);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  const focus = element.contains(document.activeElement) && document.activeElement.dataset.key;
  const places = [...element.querySelectorAll(SCROLLED)].map((one) => [one.scrollLeft, one.scrollTop]);
  element.replaceChildren(...build(data));
  element.querySelectorAll(SCROLLED).forEach((one, at) => one.scrollTo(...places[at] || [0, 0]));
  if (focus) for (const one of element.querySelectorAll("[data-key]"))
    if (one.dataset.key === focus) one.focus({ preventScroll: true });
}
let heardMs = 0, silentSinceMs = 0, viewing = null;
async function read(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    // If several updates have come, only the newest is shown.
    if (lines.length) {
      heardMs = Date.now();
      silentSinceMs = 0;
      show(JSON.parse(lines.at(-1)));
      say(new Date().toLocaleTimeString("en-GB"), "");
    }
  }
}
function say(text, name) {
  $("state").textContent = text;
  $("state").className = name;
}
function refused(token) {
  sessionStorage.removeItem(KEY);
  $("main").hidden = true;
  $("ask").hidden = false;
  $("token").focus();
  say(token ? "this is not the token" : "", "bad");
}
