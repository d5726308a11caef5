// How one message looks: a speaker's name, the text, what can be done with it. As in a printed dialogue, not as bubbles.

import { tokensPerSecond } from "./answer.js";
import { copyButton, el } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { TokenView } from "./probabilities.js";

const link = (text, onclick, title) => el("button", { type: "button", class: "link", text, onclick, title });

/** The view of any message. `actions` are the conversation's: edit, regenerate, toolResult. */
export function turnView(message, actions) {
  if (message.role === "user") return new UserTurn(message, actions);
  return message.role === "tool" ? new ToolTurn(message) : new AssistantTurn(message, actions);
}

function article(kind, speaker, ...children) {
  return el("article", { class: `turn ${kind}`, "aria-label": speaker }, el("p", { class: "speaker", text: speaker, "aria-hidden": true }), ...children);
}

class UserTurn {
  constructor(message, actions) {
    this._message = message;
    this._actions = actions;
    this._text = el("div", { class: "said", text: message.content });
    this._foot = el("footer", {}, link("Edit", () => this.edit()), copyButton(() => message.content));
    this.element = article("user", "You", this._text, this._foot);
  }

  update() {}

  /** Replace the text by a field; keeping it drops what followed and asks anew. */
  edit() {
    if (this._form) return;
    const field = el("textarea", { class: "edit", "aria-label": "Edit the message", rows: Math.min(12, this._message.content.split("\n").length + 1) });
    field.value = this._message.content;
    const close = () => {
      this._form.replaceWith(this._text, this._foot);
      this._form = null;
    };
    const keep = () => field.value.trim() && this._actions.edit(this._message, field.value);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) keep();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const buttons = el("div", { class: "turn-actions" }, el("button", { type: "button", class: "plain", text: "Ask again", onclick: keep }), link("Cancel", close));
    this._form = el("div", {}, field, buttons);
    this._foot.remove();
    this._text.replaceWith(this._form);
    field.focus();
  }
}

class ToolTurn {
  constructor(message) {
    this.element = article("tool", `Result of ${message.name}`, el("pre", { class: "tool-result", tabindex: 0, text: message.content }));
  }

  update() {}
}

class AssistantTurn {
  constructor(message, actions) {
    this._message = message;
    this._actions = actions;
    this._markdown = new MarkdownView();
    this._tokens = null;
    this._asTokens = actions.wantsTokens();
    this._cards = [];
    this._thought = el("div", { class: "thought" });
    this._summary = el("summary", { text: "Reasoning" });
    this._reasoning = el("details", { class: "reasoning", hidden: true }, this._summary, this._thought);
    this._calls = el("div", { class: "calls" });
    this._failure = el("p", { class: "failure", role: "alert", hidden: true });
    this._foot = el("footer");
    this._body = el("div", { class: "body" }, this._markdown.element);
    this.element = article("assistant", message.model || "Model", this._reasoning, this._body, this._calls, this._failure, this._foot);
  }

  /** Bring the view up to the message; `streaming` while it grows. */
  update(streaming = false) {
    const message = this._message;
    this.element.classList.toggle("streaming", streaming);
    this.element.setAttribute("aria-busy", String(streaming));
    this._updateBody(streaming);
    this._reasoning.hidden = !message.reasoning;
    this._thought.textContent = message.reasoning;
    this._summary.textContent = streaming && !message.content ? "Reasoning …" : "Reasoning";
    message.tool_calls.forEach((call, i) => this._card(call, i).update(streaming));
    this._failure.hidden = !message.error;
    this._failure.textContent = message.error ?? "";
    this._foot.replaceChildren(...(streaming ? [] : [this._facts(), this._buttons()]));
  }

  /** Show tokens with their probabilities, or the text as it is meant. */
  setTokens(asTokens) {
    this._asTokens = asTokens;
    this.update();
  }

  _updateBody(streaming) {
    const { content, logprobs } = this._message;
    const asTokens = this._asTokens && logprobs.length > 0;
    if (asTokens) {
      this._tokens ??= new TokenView();
      this._tokens.update(logprobs);
      if (!streaming) this._tokens.finish(content);
    } else {
      this._markdown.update(content);
    }
    const wanted = asTokens ? this._tokens.element : this._markdown.element;
    if (this._body.firstChild !== wanted) this._body.replaceChildren(wanted);
  }

  _card(call, i) {
    if (!this._cards[i]) {
      this._cards[i] = new CallCard(call, (result) => this._actions.toolResult(this._message, call, result), () => this._actions.isOpen(this._message, call));
      this._calls.append(this._cards[i].element);
    }
    return this._cards[i];
  }

  _facts() {
    const { usage, first_token_ms: first, finish_reason: reason, stopped } = this._message;
    const speed = tokensPerSecond(this._message);
    const cached = usage?.prompt_tokens_details?.cached_tokens;
    const facts = [
      usage && `${usage.prompt_tokens} ${cached ? `(${cached} cached) ` : ""}→ ${usage.completion_tokens} tokens`,
      first !== null && `first after ${duration(first)}`,
      speed && `${speed.toFixed(speed < 10 ? 1 : 0)} tok/s`,
      stopped ? "stopped" : reason === "length" && "cut at the token limit",
    ];
    return el("span", { class: "facts", text: facts.filter(Boolean).join("  ·  ") });
  }

  _buttons() {
    const message = this._message;
    const toggle = message.logprobs.length > 0 &&
      link(this._asTokens ? "As text" : "Probabilities", () => this.setTokens(!this._asTokens));
    return el("span", { class: "turn-actions" }, toggle, link("Again", () => this._actions.regenerate(message), "Answer once more"), copyButton(() => message.content));
  }
}

const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** A call of a tool, with a field for what the tool answers. */
class CallCard {
  constructor(call, onResult, isOpen) {
    this._call = call;
    this._isOpen = isOpen;
    this._name = el("code");
    this._arguments = el("pre", { tabindex: 0 });
    this._result = el("textarea", { rows: 2, class: "mono", "aria-label": "Result of the call", placeholder: "What the tool answers" });
    const send = el("button", { type: "button", class: "plain", text: "Hand in", onclick: () => onResult(this._result.value) });
    this._answer = el("div", { class: "call-answer" }, this._result, send);
    this.element = el("section", { class: "call", "aria-label": "Tool call" }, el("p", { class: "call-head" }, "Calls ", this._name), this._arguments, this._answer);
  }

  update(streaming) {
    this._name.textContent = this._call.function.name;
    this._arguments.textContent = pretty(this._call.function.arguments);
    this._answer.hidden = streaming || !this._isOpen();
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
