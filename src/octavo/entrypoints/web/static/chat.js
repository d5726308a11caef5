// The conversation: what was said, asking for more, stopping, and going back.

import { addChunk, asCurl, newAnswer, requestMessages } from "./answer.js";
import { ApiError, BASE, apiKey, stream } from "./api.js";
import { byId, copyText, el, notice, stored } from "./dom.js";
import { hideAlternatives } from "./probabilities.js";
import { turnView } from "./turns.js";

const STORE = "octavo.conversation";
const PATH = "v1/chat/completions";
const TOP_LOGPROBS = 5;
const OPENINGS = [
  "What is the capital of France?",
  "Write a haiku about a book that nobody has opened yet.",
  "Explain in three sentences why the sky is blue.",
];

export class Chat {
  /** `server` tells the model's name and the context's length; `onKeyNeeded` is called when the server asks for a key. */
  constructor({ settings, server, onKeyNeeded }) {
    this._settings = settings;
    this._server = server;
    this._onKeyNeeded = onKeyNeeded;
    this._messages = stored.read("sessionStorage", STORE, []);
    this._views = new Map();
    this._running = null;
    this._field = byId("composer-text");
    this._probabilities = byId("probabilities");
    this._transcript = byId("transcript");
    this._turns = byId("turns");
    this._actions = {
      edit: (message, text) => this._edit(message, text),
      regenerate: (message) => this._askFrom(this._messages.indexOf(message)),
      toolResult: (message, call, result) => this._handIn(message, call, result),
      isOpen: (message, call) => this._isOpen(message, call),
      wantsTokens: () => this._probabilities.checked,
    };
    this._listen();
    this._sync();
    this._scrollDown();
  }

  get isStreaming() {
    return this._running !== null;
  }

  /** End the answer that is being written; what has come stays. */
  stop() {
    this._running?.abort();
  }

  focus() {
    this._field.focus();
  }

  _listen() {
    this._probabilities.checked = stored.read("localStorage", "octavo.probabilities", true);
    this._probabilities.addEventListener("change", () => {
      stored.write("localStorage", "octavo.probabilities", this._probabilities.checked);
      for (const view of this._views.values()) view.setTokens?.(this._probabilities.checked);
    });
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.isStreaming) this.stop();
      else this._say(this._field.value);
    });
    this._field.addEventListener("keydown", (event) => this._onKey(event));
    this._field.addEventListener("input", () => this._fitField());
    this._transcript.addEventListener("scroll", hideAlternatives, { passive: true });
    byId("new-chat").addEventListener("click", () => this._clear());
    byId("save-json").addEventListener("click", () => this._saveJson());
    byId("copy-curl").addEventListener("click", () => this._copyCurl());
    byId("openings").append(...OPENINGS.map((text) => el("li", {}, el("button", { type: "button", class: "opening", text, onclick: () => this._say(text) }))));
  }

  _onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.isStreaming) this._say(this._field.value);
    } else if (event.key === "ArrowUp" && !this._field.value && !this.isStreaming) {
      const last = this._messages.findLast((message) => message.role === "user");
      if (!last) return;
      event.preventDefault();
      this._views.get(last).edit();
    }
  }

  _fitField() {
    this._field.style.height = "auto";
    this._field.style.height = `${this._field.scrollHeight}px`;
  }

  // -- what can be asked -----------------------------------------------------------------------------------------------

  _say(text) {
    if (!text.trim() || this.isStreaming) return;
    this._messages.push({ role: "user", content: text });
    this._field.value = "";
    this._fitField();
    this._ask();
  }

  _edit(message, text) {
    const index = this._messages.indexOf(message);
    if (this.isStreaming || index < 0) return;
    this._messages.splice(index, Infinity, { role: "user", content: text });
    this.focus();
    this._ask();
  }

  /** Answer anew what stands before the message at `index`. */
  _askFrom(index) {
    if (this.isStreaming || index < 0) return;
    this._messages.splice(index);
    this._ask();
  }

  /** The messages that answer the calls of `message`: those that follow it. */
  _results(message) {
    const rest = this._messages.slice(this._messages.indexOf(message) + 1);
    const end = rest.findIndex((other) => other.role !== "tool");
    return end < 0 ? rest : rest.slice(0, end);
  }

  _isOpen(message, call) {
    const follows = this._messages.indexOf(message) + this._results(message).length + 1 === this._messages.length;
    return follows && !this._results(message).some((result) => result.tool_call_id === call.id);
  }

  /** Keep what a tool answered; with the last open call of a message answered, the model goes on. */
  _handIn(message, call, result) {
    if (this.isStreaming) return;
    this._messages.push({ role: "tool", tool_call_id: call.id, name: call.function.name, content: result });
    if (message.tool_calls.some((other) => this._isOpen(message, other))) this._sync();
    else this._ask();
  }

  _clear() {
    this.stop();
    this._messages = [];
    this._sync();
    this.focus();
  }

  // -- asking ----------------------------------------------------------------------------------------------------------

  /** The body of the request that would continue the conversation. Throws `SettingsError`. */
  _body() {
    const probabilities = this._probabilities.checked ? { logprobs: true, top_logprobs: TOP_LOGPROBS } : {};
    return {
      model: this._server.model,
      messages: requestMessages(this._settings.system, this._messages),
      ...this._settings.chat(),
      ...probabilities,
      stream: true,
      stream_options: { include_usage: true },
    };
  }

  async _ask() {
    let body;
    try {
      body = this._body();
    } catch (error) {
      this._sync();
      notice(error.message);
      error.field?.focus();
      return;
    }
    const answer = newAnswer(this._server.model);
    this._messages.push(answer);
    await this._follow(answer, body);
  }

  async _follow(answer, body) {
    const running = new AbortController();
    this._running = running;
    this._sync();
    this._scrollDown();
    const started = performance.now();
    const speaker = new Announcer();
    try {
      for await (const chunk of stream(PATH, body, running.signal)) {
        addChunk(answer, chunk, performance.now() - started);
        speaker.hear(answer.content);
        this._drawSoon(answer);
      }
    } catch (error) {
      if (error.name === "AbortError") answer.stopped = true;
      else this._failed(answer, error);
    } finally {
      if (this._running === running) this._running = null;
      speaker.finish(answer);
      this._sync();
    }
  }

  _failed(answer, error) {
    answer.error = error.message;
    if (error instanceof ApiError && error.status === 401) this._onKeyNeeded();
  }

  // -- showing ---------------------------------------------------------------------------------------------------------

  /** One view a message, in order; those of messages that are gone go too. */
  _sync() {
    for (const [message, view] of this._views) {
      if (this._messages.includes(message)) continue;
      view.element.remove();
      this._views.delete(message);
    }
    for (const message of this._messages) {
      if (!this._views.has(message)) {
        this._views.set(message, turnView(message, this._actions));
        this._turns.append(this._views.get(message).element);
      }
      this._views.get(message).update(this.isStreaming && message === this._messages.at(-1));
    }
    byId("title-page").hidden = this._messages.length > 0;
    const send = byId("send");
    send.classList.toggle("stop", this.isStreaming);
    send.querySelector(".send-label").textContent = this.isStreaming ? "Stop" : "Send";
    this._showFolio();
    if (!this.isStreaming) stored.write("sessionStorage", STORE, this._messages);
  }

  /** Draw at most once a frame, however fast the tokens come. */
  _drawSoon(answer) {
    if (this._frame) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = null;
      const view = this._views.get(answer);
      if (!view) return;
      const atEnd = this._isAtEnd();
      view.update(this.isStreaming);
      if (atEnd) this._scrollDown();
    });
  }

  _isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this._transcript;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  _scrollDown() {
    this._transcript.scrollTop = this._transcript.scrollHeight;
  }

  /** The foot of the page: how full the context is. */
  _showFolio() {
    const last = this._messages.findLast((message) => message.usage);
    const limit = this._server.maxModelLen;
    const used = last?.usage.total_tokens;
    byId("folio").textContent = used ? `${used.toLocaleString("en")}${limit ? ` of ${limit.toLocaleString("en")}` : ""} tokens` : "";
  }

  // -- taking it along -------------------------------------------------------------------------------------------------

  _saveJson() {
    const kept = { model: this._server.model, system: this._settings.system, messages: this._messages, exported: new Date().toISOString() };
    const href = URL.createObjectURL(new Blob([JSON.stringify(kept, null, 2)], { type: "application/json" }));
    el("a", { href, download: "conversation.json" }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  }

  /** The request that gave the last answer (or would give the next one), as a command. */
  async _copyCurl() {
    try {
      const body = this._body();
      if (body.messages.at(-1)?.role === "assistant") body.messages.pop();
      await copyText(asCurl(new URL(PATH, BASE).href, body, apiKey.get() !== ""));
      notice("The request is on the clipboard, as a curl command.");
    } catch (error) {
      notice(error.message);
    }
  }
}

/** Reads a growing answer aloud to screen readers: whole sentences, not letters. */
class Announcer {
  constructor() {
    this._said = 0;
    this._region = byId("announcer");
    this._region.textContent = "Answering.";
  }

  hear(text) {
    const end = Math.max(text.lastIndexOf(". "), text.lastIndexOf("\n"), text.lastIndexOf("? "), text.lastIndexOf("! "));
    if (end + 1 - this._said < 40) return;
    this._region.textContent = text.slice(this._said, end + 1);
    this._said = end + 1;
  }

  finish(answer) {
    const rest = answer.content.slice(this._said);
    const end = answer.error ? "" : answer.stopped ? "Stopped." : "End of the answer.";
    this._region.textContent = `${rest} ${end}`;
  }
}
