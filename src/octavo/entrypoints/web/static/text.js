// A text and its tokens: what the model sees of it, and how it would go on.

import { ApiError, postJson, stream } from "./api.js";
import { byId, el, notice } from "./dom.js";
import { visible } from "./probabilities.js";

const SETTLE_MS = 250;
// Enough to look at; more elements would only make the page slow.
const MAX_SHOWN = 4000;
const DEFAULT_MAX_TOKENS = 64;

export class TextPage {
  constructor({ settings, server, onKeyNeeded }) {
    this._settings = settings;
    this._server = server;
    this._onKeyNeeded = onKeyNeeded;
    this._input = byId("text-input");
    this._button = byId("continue");
    this._undo = byId("undo-continue");
    this._error = byId("text-error");
    this._out = byId("tokens");
    this._running = null;
    this._input.addEventListener("input", () => this._tokenizeSoon());
    this._input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this._toggle();
    });
    this._button.addEventListener("click", () => this._toggle());
    this._undo.addEventListener("click", () => this._takeBack());
    byId("show-ids").addEventListener("change", (event) => this._out.classList.toggle("with-ids", event.target.checked));
  }

  /** End a continuation that is being written. */
  stop() {
    this._running?.abort();
  }

  focus() {
    this._input.focus();
  }

  _toggle() {
    if (this._running) this.stop();
    else this._continue();
  }

  async _continue() {
    const prompt = this._input.value;
    if (!prompt) return this.focus();
    let body;
    try {
      body = { model: this._server.model, prompt, max_tokens: DEFAULT_MAX_TOKENS, ...this._settings.sampling(), stream: true };
    } catch (error) {
      notice(error.message);
      return error.field.focus();
    }
    this._before = prompt;
    this._running = new AbortController();
    this._button.textContent = "Stop";
    this._input.readOnly = true;
    this._fail(null);
    try {
      for await (const chunk of stream("v1/completions", body, this._running.signal)) {
        this._input.value += chunk.choices?.[0]?.text ?? "";
        this._input.scrollTop = this._input.scrollHeight;
        this._tokenizeSoon();
      }
    } catch (error) {
      if (error.name !== "AbortError") this._fail(error);
    }
    this._running = null;
    this._button.textContent = "Continue the text";
    this._input.readOnly = false;
    this._undo.hidden = this._input.value === prompt;
    this._tokenizeSoon();
  }

  _takeBack() {
    this._input.value = this._before;
    this._undo.hidden = true;
    this._tokenizeSoon();
    this.focus();
  }

  _fail(error) {
    this._error.hidden = !error;
    this._error.textContent = error?.message ?? "";
    if (error instanceof ApiError && error.status === 401) this._onKeyNeeded();
  }

  _tokenizeSoon() {
    if (this._timer) return;
    this._timer = setTimeout(() => {
      this._timer = 0;
      this._tokenize();
    }, SETTLE_MS);
  }

  async _tokenize() {
    this._latest?.abort();
    const latest = (this._latest = new AbortController());
    const text = this._input.value;
    if (!text) return this._show({ count: 0, tokens: [], token_strs: [] }, text);
    try {
      const body = { model: this._server.model, prompt: text, return_token_strs: true };
      this._show(await postJson("tokenize", body, latest.signal), text);
      this._fail(null);
    } catch (error) {
      if (error.name !== "AbortError") this._fail(error);
    }
  }

  _show({ count, tokens, token_strs: strings, max_model_len: limit }, text) {
    const shown = tokens.slice(0, MAX_SHOWN).flatMap((id, i) => token(id, strings[i], i));
    const more = count > MAX_SHOWN ? el("span", { class: "facts", text: ` … and ${(count - MAX_SHOWN).toLocaleString("en")} more` }) : "";
    this._out.replaceChildren(...shown, more);
    const perToken = count ? `  ·  ${([...text].length / count).toFixed(2)} characters a token` : "";
    const room = limit ? ` of ${limit.toLocaleString("en")}` : "";
    byId("text-facts").textContent = text ? `${count.toLocaleString("en")}${room} tokens${perToken}` : "";
  }
}

function token(id, text, index) {
  const node = el("span", { class: `piece hue-${index % 5}`, title: `token ${id}` }, el("span", { class: "piece-text", text: visible(text) }), el("span", { class: "piece-id", text: String(id) }));
  return text.includes("\n") ? [node, el("br")] : node;
}
