// An answer as its tokens, each coloured by how unsure the model was, with the alternatives at hand: by mouse, touch and keys.

import { byId, el } from "./dom.js";

const percent = (logprob) => {
  const p = Math.exp(logprob);
  return p >= 0.9995 ? "100%" : p >= 0.1 ? `${(p * 100).toFixed(1)}%` : p >= 0.0001 ? `${(p * 100).toFixed(2)}%` : "<0.01%";
};

const MARKS = { "\n": "↵", "\t": "⇥", " ": "·" };
/** A token with its blanks made visible. */
export const visible = (text) => text.replace(/[\n\t]|^ +| +$/g, (blank) => [...blank].map((char) => MARKS[char]).join("")) || "∅";

/** Token spans of one answer. Exactly one of them is in the tab order; arrow keys go from token to token. */
export class TokenView {
  constructor() {
    this.element = el("div", { class: "prose token-view", role: "group", "aria-label": "Answer by tokens; arrow keys go from one to the next" });
    this._entries = [];
    this._decoder = new TextDecoder();
    this.element.addEventListener("mouseover", (event) => this._show(event.target));
    this.element.addEventListener("focusin", (event) => this._show(event.target));
    this.element.addEventListener("click", (event) => this._focus(event.target));
    this.element.addEventListener("mouseleave", () => this._showFocused());
    this.element.addEventListener("focusout", hideAlternatives);
    this.element.addEventListener("keydown", (event) => this._onKey(event));
  }

  /** Show all of `entries` (chat's `logprobs.content`); those that are there already stay. */
  update(entries) {
    for (const entry of entries.slice(this._entries.length)) {
      this.element.append(this._span(entry));
      this._entries.push(entry);
    }
  }

  /** Tell the tokens that are no part of the answer's text (its end, a stop string) from those that are. */
  finish(content) {
    let length = 0;
    for (const span of this.element.children) {
      span.classList.toggle("unsaid", length >= content.length && !span.classList.contains("partial"));
      length += span.classList.contains("partial") ? 0 : span.textContent.length;
    }
  }

  _span(entry) {
    // Bytes, not strings: a character may be spread over several tokens, and only the last of them can spell it.
    const text = entry.bytes ? this._decoder.decode(new Uint8Array(entry.bytes), { stream: true }) : entry.token;
    const index = this._entries.length;
    const span = el("span", { class: "token", "data-index": index, tabindex: index ? -1 : 0, role: "button" }, text || "\u200b");
    if (!text) span.classList.add("partial");
    span.setAttribute("aria-label", `${visible(entry.token)}, ${percent(entry.logprob)}`);
    span.style.setProperty("--doubt", `${Math.round((1 - Math.exp(entry.logprob)) * 100)}%`);
    return span;
  }

  _show(target) {
    const entry = this._entries[target.dataset?.index];
    if (entry) showAlternatives(target, entry);
  }

  _showFocused() {
    if (this.element.contains(document.activeElement)) this._show(document.activeElement);
    else hideAlternatives();
  }

  _focus(target) {
    if (!target.dataset?.index) return;
    this.element.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    target.setAttribute("tabindex", "0");
    target.focus({ preventScroll: false });
  }

  _onKey(event) {
    const all = this.element.children;
    const here = Number(document.activeElement.dataset.index);
    const steps = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 };
    if (event.key === "Escape") hideAlternatives();
    const next = all[steps[event.key]];
    if (!next) return;
    event.preventDefault();
    this._focus(next);
  }
}

function showAlternatives(anchor, entry) {
  const box = byId("alternatives");
  const others = entry.top_logprobs ?? [];
  const rows = others.some((other) => other.token === entry.token) ? others : [...others, entry];
  const head = el("p", { class: "alternatives-head" }, el("code", { text: visible(entry.token) }), el("span", { text: percent(entry.logprob) }));
  box.replaceChildren(head, el("ol", {}, rows.map((row) => alternative(row, row.token === entry.token))));
  box.hidden = false;
  document.querySelector("[aria-describedby=alternatives]")?.removeAttribute("aria-describedby");
  anchor.setAttribute("aria-describedby", "alternatives");
  place(box, anchor);
}

function alternative(row, chosen) {
  const bar = el("span", { class: "bar" });
  bar.style.setProperty("--p", `${Math.exp(row.logprob) * 100}%`);
  return el("li", chosen ? { class: "chosen" } : {}, el("code", { text: visible(row.token) }), bar, el("span", { class: "number", text: percent(row.logprob) }));
}

/** Under the token, or over it where there is no room; never outside the window. */
function place(box, anchor) {
  const at = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = box;
  const below = at.bottom + 6 + height <= window.innerHeight;
  box.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - width - 8))}px`;
  box.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
}

export function hideAlternatives() {
  byId("alternatives").hidden = true;
}
