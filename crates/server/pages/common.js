// Shared by both pages: calls with the token of this tab, and elements made of text only.

const TOKEN = "longhaul-token";

export const find = (id) => document.getElementById(id);

// An element with properties, and children that are elements or text. Data never becomes markup.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function table(head, rows) {
  const cell = (tag) => (value) => (value instanceof Node && /^T[DH]$/.test(value.nodeName) ? value : make(tag, {}, value));
  return make("div", { className: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map(cell("th")))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell("td")))))));
}

export function number(value) {
  return make("td", { className: "number" }, String(value));
}

export function hint(text) {
  return make("p", { className: "hint" }, text);
}

export function problem(text) {
  find("problem").textContent = text ?? "";
  find("problem").hidden = !text;
}

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// Calls the API with the token of this tab. Returns the Response; throws when it is refused.
export async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  if (response.status === 401) askForToken();
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.detail ?? `HTTP status ${response.status}`);
}

export async function read(path) {
  return (await call(path)).json();
}

function askForToken() {
  const form = find("sign-in");
  if (!form.hidden) return;
  sessionStorage.removeItem(TOKEN);
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, find("token").value.trim());
    location.reload();
  });
  find("token").focus();
}
