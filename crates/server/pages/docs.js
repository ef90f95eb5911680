// The API reference, made from the OpenAPI document.

import { call, find, hint, make, problem, read, table } from "./common.js";

const VERBS = ["get", "post", "patch", "delete"];
// Bytes of a response that are shown.
const SHOWN = 20000;

const anchor = (name) => `schema-${name}`;

// The type of a schema as text; names of schemas are links.
function typeOf(schema) {
  if (!schema || Object.keys(schema).length === 0) return ["anything"];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [make("a", { href: `#${anchor(name)}` }, name)];
  }
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return choices.flatMap((one, index) => (index ? [" or ", ...typeOf(one)] : typeOf(one)));
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(", ")];
  const kinds = [schema.type ?? "anything"].flat();
  const text = kinds.map((kind) => (kind === "string" && schema.format ? schema.format : kind)).join(" or ");
  if (kinds.includes("array")) return ["array of ", ...typeOf(schema.items)];
  if (schema.additionalProperties && kinds.includes("object")) return ["object of ", ...typeOf(schema.additionalProperties)];
  const [least, most] = [schema.minimum ?? schema.minItems, schema.maximum ?? schema.maxItems];
  if (least === undefined && most === undefined) return [text];
  if (most === undefined) return [`${text}, ${least} or more`];
  return [`${text}, ${least ?? "up"} to ${most}`];
}

// All properties of a schema, including those of its parts.
function properties(schema) {
  if (schema.allOf) return schema.allOf.flatMap(properties);
  const needed = schema.required ?? [];
  return Object.entries(schema.properties ?? {}).map(([name, one]) => [name, one, needed.includes(name)]);
}

function fields(schema) {
  const rows = properties(schema).map(([name, one, needed]) => [
    make("code", {}, name), make("td", {}, ...typeOf(one)), (one.description ?? "").replaceAll("`", ""), needed ? "always" : ""]);
  const wholes = (schema.allOf ?? []).filter((one) => one.$ref).flatMap(typeOf);
  const more = wholes.length ? make("p", {}, "All of ", ...wholes, ", and:") : null;
  return make("div", {}, more, rows.length ? table(["Field", "Type", "", ""], rows) : make("p", {}, ...typeOf(schema)));
}

function responses(operation) {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const [kind, content] = Object.entries(response.content ?? {})[0] ?? ["", null];
    return [make("code", {}, status), response.description, make("td", {}, ...(content?.schema ? typeOf(content.schema) : [])), kind];
  });
  return table(["Status", "", "", "Kind"], rows);
}

// A form that sends the call. A stream has no end, so the page shows a curl command instead.
function trial(verb, path, operation, inputs, body) {
  const output = make("pre", { hidden: true });
  const show = (text) => { output.textContent = text.slice(0, SHOWN); output.hidden = false; };
  const target = () => {
    const given = (location) => [...inputs].filter(([parameter, input]) => parameter.in === location && input.value !== "");
    const filled = given("path").reduce((text, [one, input]) => text.replace(`{${one.name}}`, encodeURIComponent(input.value)), path);
    const query = new URLSearchParams(given("query").map(([one, input]) => [one.name, input.value])).toString();
    return { url: query ? `${filled}?${query}` : filled, headers: Object.fromEntries(given("header").map(([one, input]) => [one.name, input.value])) };
  };
  const send = make("button", { type: "button" }, "Send");
  send.addEventListener("click", async () => {
    const { url, headers } = target();
    if (url.includes("{")) return show("Fill in the parameters of the path.");
    const sent = body && body.value.trim() ? { body: body.value, headers: { ...headers, "content-type": "application/json" } } : { headers };
    try {
      const response = await call(url, { method: verb.toUpperCase(), ...sent });
      const text = await response.text();
      show(`${response.status}\n${pretty(text)}`);
    } catch (error) {
      show(`${error.status ?? ""} ${error.message}`);
    }
  });
  const isStream = Object.values(operation.responses).some((one) => one.content?.["text/event-stream"]);
  return isStream ? [make("pre", {}, `curl -N ${location.origin}${path}`)] : [send, output];
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// A body to start from: every field that is always needed.
function example(document, schema) {
  const whole = schema.$ref ? document.components.schemas[schema.$ref.split("/").pop()] : schema;
  const needed = properties(whole).filter(([name, , isNeeded]) => isNeeded || name === "parameters");
  const value = (name, one) => {
    if (name === "taskType") return "sample.echo";
    const kind = [one.type].flat()[0];
    return { string: "", integer: 0, boolean: false, array: [] }[kind] ?? {};
  };
  return JSON.stringify(Object.fromEntries(needed.map(([name, one]) => [name, value(name, one)])), null, 2);
}

function operationView(document, verb, path, operation) {
  const inputs = new Map((operation.parameters ?? []).map((one) => [one, make("input", { ariaLabel: one.name })]));
  const schema = operation.requestBody?.content?.["application/json"]?.schema;
  const body = schema ? make("textarea", { value: example(document, schema), rows: 6, ariaLabel: "body" }) : null;
  const rows = [...inputs].map(([one, input]) => [make("code", {}, one.name), one.in, one.description ?? "", input]);
  const view = make("details", { className: "operation", id: operation.operationId },
    make("summary", {}, make("span", { className: `verb ${verb}` }, verb), make("code", {}, path), make("span", {}, (operation.summary ?? "").replaceAll("`", ""))));
  // The content is built when the element is opened: most never are.
  view.addEventListener("toggle", () => {
    if (!view.open || view.children.length > 1) return;
    view.append(make("div", {},
      operation.description ? hint(operation.description.replaceAll("`", "")) : null,
      ...(rows.length ? [make("h3", {}, "Parameters"), table(["Name", "In", "", ""], rows)] : []),
      ...(schema ? [make("h3", {}, "Body: ", ...typeOf(schema)), body] : []),
      make("h3", {}, "Responses"), responses(operation), make("h3", {}, "Try it"), ...trial(verb, path, operation, inputs, body)));
  });
  view.dataset.text = `${verb} ${path} ${operation.summary}`.toLowerCase();
  return view;
}

function show(document) {
  find("version").textContent = `version ${document.info.version}`;
  const groups = new Map();
  for (const [path, item] of Object.entries(document.paths)) {
    for (const verb of VERBS.filter((one) => item[one])) {
      const tag = item[verb].tags?.[0] ?? "server";
      groups.set(tag, [...(groups.get(tag) ?? []), operationView(document, verb, path, item[verb])]);
    }
  }
  const tags = [...groups.keys()].sort((a, b) => (b === "tasks") - (a === "tasks") || a.localeCompare(b));
  find("operations").append(...tags.map((tag) => make("section", {}, make("h2", {}, tag), ...groups.get(tag))));
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    find("schemas").append(make("section", { id: anchor(name) }, make("h3", {}, name),
      schema.description ? hint(schema.description) : null, fields(schema)));
  }
}

find("filter").addEventListener("input", (event) => {
  const word = event.target.value.toLowerCase();
  for (const one of document.querySelectorAll(".operation")) one.hidden = !one.dataset.text.includes(word);
  for (const section of find("operations").children) section.hidden = !section.querySelector(".operation:not([hidden])");
});

read("/api/openapi.json").then((document) => {
  show(document);
  // The element that the URL names exists only now.
  const named = location.hash && find(decodeURIComponent(location.hash.slice(1)));
  if (named) { if ("open" in named) named.open = true; named.scrollIntoView(); }
}).catch((error) => problem(error.message));
