// The live engine, from /metrics once a second, for as long as somebody can see it.

import { ApiError, getText } from "./api.js";
import { byId, el, svg } from "./dom.js";
import { growth, parse, quantile } from "./metrics.js";

const PERIOD_MS = 1000;
const MAX_PAUSE_MS = 16000;
const KEPT = 120;
// Latencies are of the last minute; so is the share of prompts that the cache had.
const WINDOW_MS = 60000;
const LEAVES = 64;

const number = (value, digits = 0) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits }));
const seconds = (value) => (value === null ? "–" : value < 0.1 ? `${(value * 1000).toFixed(1)} ms` : value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`);
const speed = (value) => number(value, value !== null && value > 0 && value < 10 ? 1 : 0);

export class EnginePanel {
  constructor() {
    this._panel = byId("engine");
    this._state = byId("engine-state");
    this._readings = [];
    this._pause = PERIOD_MS;
    this._timer = 0;
    this._build(byId("engine-body"));
    document.addEventListener("visibilitychange", () => this.wake());
    new ResizeObserver(() => this.wake()).observe(this._panel);
  }

  get _isSeen() {
    return !document.hidden && this._panel.offsetParent !== null;
  }

  /** Begin to poll if the panel can be seen and nobody polls; polling ends by itself when it is hidden. */
  wake() {
    if (!this._isSeen || this._timer) return;
    this._timer = setTimeout(() => this._tick(), 0);
  }

  /** Ask at once again, as after a key was given. */
  retry() {
    clearTimeout(this._timer);
    this._timer = 0;
    this._pause = PERIOD_MS;
    this.wake();
  }

  async _tick() {
    if (!this._isSeen) {
      this._timer = 0;
      return;
    }
    try {
      this._take({ time: performance.now(), ...parse(await getText("metrics")) });
      this._pause = PERIOD_MS;
      this._say("live", "live");
    } catch (error) {
      this._pause = Math.min(MAX_PAUSE_MS, this._pause * 2);
      const needsKey = error instanceof ApiError && error.status === 401;
      this._say(needsKey ? "waiting" : "gone", needsKey ? "needs the API key" : "not reachable");
    }
    this._timer = setTimeout(() => this._tick(), this._pause);
  }

  _say(kind, text) {
    this._state.className = `state ${kind}`;
    if (this._state.textContent !== text) this._state.textContent = text;
  }

  _take(reading) {
    const previous = this._readings.at(-1);
    // After a pause (the page was hidden) rates would be means over the pause: begin anew.
    if (previous && reading.time - previous.time > 5 * PERIOD_MS) this._readings = [];
    reading.rates = this._rates(reading);
    this._readings.push(reading);
    if (this._readings.length > KEPT) this._readings.shift();
    this._show(reading);
  }

  _rates(reading) {
    const previous = this._readings.at(-1);
    if (!previous) return { generation: null, prompt: null };
    const span = (reading.time - previous.time) / 1000;
    const rate = (name) => {
      const grown = growth(previous, reading, name);
      return grown === null ? null : grown / span;
    };
    return { generation: rate("generation_tokens_total"), prompt: rate("prompt_tokens_total") };
  }

  // -- the page ------------------------------------------------------------------------------------------------------

  _build(body) {
    this._values = {};
    const value = (name) => (this._values[name] = el("span", { class: "value", text: "–" }));
    const row = (label, name, hint) => el("div", { class: "fact-row", title: hint }, el("dt", { text: label }), el("dd", {}, value(name)));
    const big = (label, name) => el("div", { class: "big" }, el("dt", { text: label }), el("dd", {}, value(name)));
    this._leaves = Array.from({ length: LEAVES }, () => svg("rect", { width: 8.6, height: 5.6, rx: 0.6 }));
    this._leaves.forEach((leaf, i) => {
      leaf.setAttribute("x", (i % 16) * 10 + 0.7);
      leaf.setAttribute("y", Math.floor(i / 16) * 7 + 0.7);
    });
    this._sheet = svg("svg", { class: "leaves", viewBox: "0 0 160 28.4", role: "img" }, ...this._leaves);
    this._sparks = { generation: new Spark("Answer tokens a second"), prompt: new Spark("Prompt tokens a second") };
    body.append(
      el("dl", { class: "bigs" }, big("running", "running"), big("waiting", "waiting")),
      el("section", {}, el("h3", { text: "Tokens a second" }),
        el("div", { class: "spark-row" }, el("span", { text: "answers" }), value("generation")), this._sparks.generation.element,
        el("div", { class: "spark-row" }, el("span", { text: "prompts" }), value("prompt")), this._sparks.prompt.element),
      el("section", {}, el("h3", { text: "Pages of the cache" }), this._sheet,
        el("dl", {}, row("in use", "used", "Pages that running requests refer to"), row("shared", "shared", "Of these, pages that more than one request refers to"),
          row("prompt tokens found", "hits", "Share of prompt tokens that the prefix cache had, last minute"), row("preemptions", "preemptions", "Since the server's start"))),
      el("section", {}, el("h3", { text: "Latency, last minute" }), this._latencies(value)));
  }

  _latencies(value) {
    const head = el("tr", {}, ["", "p50", "p95"].map((text) => (text ? el("th", { scope: "col", text }) : el("td"))));
    const row = (label, name) => el("tr", {}, el("th", { scope: "row", text: label }), el("td", {}, value(`${name}50`)), el("td", {}, value(`${name}95`)));
    return el("table", { class: "latency" }, el("thead", {}, head), el("tbody", {}, row("first token", "first"), row("next token", "next"), row("whole answer", "whole")));
  }

  _show(reading) {
    const { values, rates } = reading;
    const oldest = this._readings.find((other) => reading.time - other.time <= WINDOW_MS);
    const pages = values.kv_cache_num_pages || null;
    const share = values.kv_cache_usage_perc ?? null;
    this._set("running", number(values.num_requests_running));
    this._set("waiting", number(values.num_requests_waiting));
    this._set("generation", speed(rates.generation));
    this._set("prompt", speed(rates.prompt));
    this._set("used", pages && share !== null ? `${number(Math.round(share * pages))} of ${number(pages)}` : share === null ? "–" : `${number(share * 100, 1)}%`);
    this._set("shared", pages ? number(values.kv_cache_num_shared_pages) : "–");
    this._set("hits", percentOf(growth(oldest, reading, "prefix_cache_hits_total"), growth(oldest, reading, "prefix_cache_queries_total")));
    this._set("preemptions", number(values.num_preemptions_total));
    for (const [key, name] of [["first", "time_to_first_token_seconds"], ["next", "inter_token_latency_seconds"], ["whole", "e2e_request_latency_seconds"]]) {
      this._set(`${key}50`, seconds(quantile(oldest, reading, name, 0.5)));
      this._set(`${key}95`, seconds(quantile(oldest, reading, name, 0.95)));
    }
    this._showLeaves(share ?? 0, pages ? values.kv_cache_num_shared_pages / pages : 0);
    for (const [name, spark] of Object.entries(this._sparks)) spark.draw(this._readings.map((other) => other.rates[name] ?? 0));
  }

  /** Each leaf is one part in 64 of the pages; a share that is not nothing fills at least one. */
  _showLeaves(used, shared) {
    const filled = Math.ceil(used * LEAVES - 1e-9);
    const common = Math.min(filled, Math.ceil(shared * LEAVES - 1e-9));
    this._leaves.forEach((leaf, i) => leaf.setAttribute("class", i < common ? "shared" : i < filled ? "used" : ""));
    this._sheet.setAttribute("aria-label", `${Math.round(used * 100)}% of the pages are in use`);
  }

  _set(name, text) {
    if (this._values[name].textContent !== text) this._values[name].textContent = text;
  }
}

const percentOf = (part, whole) => (whole ? `${number((100 * part) / whole)}%` : "–");

/** A small line of the last readings. */
class Spark {
  constructor(label) {
    this._label = label;
    this._area = svg("path", { class: "area" });
    this._line = svg("path", { class: "line" });
    this.element = svg("svg", { class: "spark", viewBox: `0 0 ${KEPT - 1} 32`, preserveAspectRatio: "none", role: "img" }, this._area, this._line);
  }

  draw(values) {
    const top = Math.max(1, ...values);
    const start = KEPT - values.length;
    const points = values.map((value, i) => `${start + i},${(31 - (value / top) * 29).toFixed(2)}`);
    this._line.setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
    this._area.setAttribute("d", points.length > 1 ? `M${start},32L${points.join("L")}L${KEPT - 1},32Z` : "");
    this.element.setAttribute("aria-label", `${this._label}: ${Math.round(values.at(-1))} now, ${Math.round(top)} at most`);
  }
}
