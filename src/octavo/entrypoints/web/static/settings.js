// The settings beside the chat, and how they become fields of a request. An empty field is left to the model's defaults.

import { el, stored } from "./dom.js";

const NUMBERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, neutral: 1, hint: "0 always takes the most likely token" },
  { name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.01, neutral: 1, hint: "keep the likeliest tokens that make up this share" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, neutral: 0, hint: "drop tokens below this share of the likeliest one" },
  { name: "top_k", label: "Top k", min: 0, step: 1, whole: true, hint: "keep this many tokens; 0 keeps all" },
  { name: "max_tokens", label: "Max tokens", min: 1, step: 1, whole: true, hint: "length of an answer at most" },
  { name: "seed", label: "Seed", step: 1, whole: true, hint: "same seed, same answer" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, hint: "against tokens that have been said" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, hint: "the more, the oftener they were said" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.01, step: 0.05, hint: "over 1: against anything seen, the prompt too" },
];
const SIMPLE = new Set(["temperature", "top_p", "min_p", "top_k", "max_tokens", "seed"]);
const STORE = "octavo.settings";
const TOOLS_EXAMPLE = `[{"type": "function", "function": {
  "name": "get_weather",
  "description": "Weather of a city",
  "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"]}}}]`;
const SCHEMA_EXAMPLE = `{"type": "object",
 "properties": {"title": {"type": "string"},
                "year": {"type": "integer"}},
 "required": ["title", "year"]}`;

/** A setting that says no sensible thing; `field` is where. */
export class SettingsError extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

export class Settings extends EventTarget {
  constructor(form) {
    super();
    this._form = form;
    this._fields = {};
    form.append(this._system(), this._sampling(), this._tools(), this._format(), this._foot());
    form.addEventListener("submit", (event) => event.preventDefault());
    this._restore(stored.read("localStorage", STORE, {}));
    form.addEventListener("input", () => this._changed());
    this._showFormat();
  }

  get system() {
    return this._fields.system.value;
  }

  set system(text) {
    this._fields.system.value = text;
    this._changed();
  }

  /** Sampling fields that were set, for chat and for completions. Throws `SettingsError`. */
  sampling() {
    const fields = {};
    for (const spec of NUMBERS) {
      const input = this._fields[spec.name];
      if (input.validity.badInput) throw new SettingsError(`${spec.label}: this is not a number.`, input);
      if (input.value !== "") fields[spec.name] = Number(input.value);
    }
    const stop = this._fields.stop.value.split("\n").filter((line) => line !== "");
    if (stop.length) fields.stop = stop.map((line) => line.replaceAll("\\n", "\n"));
    return fields;
  }

  /** All fields of a chat request that come from here. Throws `SettingsError`. */
  chat() {
    return { ...this.sampling(), ...this._toolFields(), ...this._formatFields() };
  }

  _toolFields() {
    const input = this._fields.tools;
    if (!input.value.trim()) return {};
    const tools = parsed(input, "Tools");
    if (!Array.isArray(tools)) throw new SettingsError("Tools: this must be a list.", input);
    return { tools, tool_choice: toolChoice(this._fields.tool_choice.value) };
  }

  _formatFields() {
    const kind = this._fields.format.value;
    if (kind === "json_object") return { response_format: { type: "json_object" } };
    if (kind !== "json_schema") return {};
    const schema = parsed(this._fields.schema, "JSON schema");
    return { response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } } };
  }

  _system() {
    const input = this._keep("system", el("textarea", { id: "set-system", rows: 3, placeholder: "The model's own" }));
    return el("section", {}, el("label", { class: "field-title", for: "set-system", text: "System prompt" }), input);
  }

  _sampling() {
    const rows = (wanted) => NUMBERS.filter((spec) => SIMPLE.has(spec.name) === wanted).map((spec) => this._number(spec));
    const stop = this._keep("stop", el("textarea", { id: "set-stop", rows: 2, placeholder: "One a line; \\n is a line break", spellcheck: "false" }));
    return el("section", {},
      el("h3", { class: "field-title", text: "Sampling" }),
      rows(true),
      el("details", {}, el("summary", { text: "Penalties and stop strings" }), rows(false), el("label", { for: "set-stop", text: "Stop strings" }), stop));
  }

  _number(spec) {
    const id = `set-${spec.name}`;
    const input = this._keep(spec.name, el("input", { id, type: "number", min: spec.min, max: spec.max, step: spec.whole ? 1 : "any", placeholder: "default", inputmode: spec.whole ? "numeric" : "decimal" }));
    const row = el("div", { class: "number-row", title: spec.hint }, el("label", { for: id, text: spec.label }), input);
    if (spec.neutral === undefined) return row;
    const range = el("input", { type: "range", min: spec.min, max: spec.max, step: spec.step, "aria-label": `${spec.label}, slider` });
    range.addEventListener("input", () => (input.value = range.value));
    input.mirror = () => {
      range.value = input.value === "" ? spec.neutral : input.value;
      range.classList.toggle("unset", input.value === "");
    };
    row.append(range);
    return row;
  }

  _tools() {
    const input = this._keep("tools", el("textarea", { id: "set-tools", rows: 5, spellcheck: "false", class: "mono", placeholder: TOOLS_EXAMPLE }));
    const choice = this._keep("tool_choice", el("input", { id: "set-choice", list: "choices", placeholder: "auto" }));
    const options = el("datalist", { id: "choices" }, ["auto", "none", "required"].map((value) => el("option", { value })));
    return el("details", { class: "section" }, el("summary", { class: "field-title", text: "Tools" }),
      el("label", { for: "set-tools", text: "Functions, as JSON" }), input, this._example(input, TOOLS_EXAMPLE),
      el("div", { class: "number-row", title: "auto, none, required, or the name of a function" }, el("label", { for: "set-choice", text: "Tool choice" }), choice, options));
  }

  _format() {
    const names = { text: "Text", json_object: "Any JSON object", json_schema: "JSON by schema" };
    const format = this._keep("format", el("select", { id: "set-format" }, Object.entries(names).map(([value, text]) => el("option", { value, text }))));
    const schema = this._keep("schema", el("textarea", { id: "set-schema", rows: 6, spellcheck: "false", class: "mono", placeholder: SCHEMA_EXAMPLE }));
    this._schemaBox = el("div", {}, el("label", { for: "set-schema", text: "Schema" }), schema, this._example(schema, SCHEMA_EXAMPLE));
    return el("details", { class: "section" }, el("summary", { class: "field-title", text: "Answer format" }),
      el("div", { class: "number-row" }, el("label", { for: "set-format", text: "Format" }), format), this._schemaBox);
  }

  _foot() {
    const reset = el("button", { type: "button", class: "link", text: "Back to the defaults", onclick: () => this._restore({}, true) });
    return el("p", {}, reset);
  }

  _example(input, text) {
    const fill = () => {
      input.value = text;
      this._changed();
    };
    return el("button", { type: "button", class: "link", text: "Fill in an example", onclick: fill });
  }

  _keep(name, field) {
    this._fields[name] = field;
    return field;
  }

  _restore(values, write = false) {
    for (const [name, field] of Object.entries(this._fields)) {
      field.value = values[name] ?? (name === "format" ? "text" : "");
      const section = field.closest("details");
      if (section && field.value && field.value !== "text") section.open = true;
    }
    if (write) this._changed();
    this._mirror();
  }

  _changed() {
    const values = Object.entries(this._fields).map(([name, field]) => [name, field.value]);
    stored.write("localStorage", STORE, Object.fromEntries(values));
    this._mirror();
    this._showFormat();
    this.dispatchEvent(new Event("change"));
  }

  _mirror() {
    for (const field of Object.values(this._fields)) field.mirror?.();
  }

  _showFormat() {
    this._schemaBox.hidden = this._fields.format.value !== "json_schema";
  }
}

function parsed(input, label) {
  try {
    return JSON.parse(input.value);
  } catch (error) {
    throw new SettingsError(`${label}: this is not JSON (${error.message}).`, input);
  }
}

function toolChoice(text) {
  const choice = text.trim() || "auto";
  return ["auto", "none", "required"].includes(choice) ? choice : { type: "function", function: { name: choice } };
}
