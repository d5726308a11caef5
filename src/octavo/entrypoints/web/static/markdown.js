// Markdown to DOM nodes: the part of it that models write. Text becomes text nodes, links are http(s) or mail only, pictures
// are shown as links, and HTML is shown as it was written. Every scan is linear, whatever the text.

import { copyButton, el } from "./dom.js";

const MAX_DEPTH = 8;
const MAX_LINK = 500;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const FENCE = /^\s{0,3}(```+|~~~+)\s*([^\s`]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Cut `text` into blocks `{kind, lines, ...}`; all but the last are final however the text goes on. */
export function blocks(text) {
  const lines = text.split("\n");
  const found = [];
  for (let i = 0; i < lines.length; ) {
    if (!lines[i].trim()) {
      i++;
      continue;
    }
    const start = i;
    const kind = kindAt(lines, i);
    i = endOf(kind, lines, i);
    found.push({ kind, lines: lines.slice(start, i) });
  }
  return found;
}

function kindAt(lines, i) {
  if (FENCE.test(lines[i])) return "code";
  if (HEADING.test(lines[i])) return "heading";
  if (RULE.test(lines[i])) return "rule";
  if (/^\s{0,3}>/.test(lines[i])) return "quote";
  if (ITEM.test(lines[i])) return "list";
  if (lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && TABLE_RULE.test(lines[i + 1])) return "table";
  return "paragraph";
}

function endOf(kind, lines, start) {
  let i = start + 1;
  if (kind === "code") {
    const fence = FENCE.exec(lines[start])[1];
    while (i < lines.length && !isClosing(lines[i], fence)) i++;
    return Math.min(i + 1, lines.length);
  }
  if (kind === "heading" || kind === "rule") return i;
  while (i < lines.length && goesOn(kind, lines, i)) i++;
  return i;
}

const isClosing = (line, fence) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "");

function goesOn(kind, lines, i) {
  const blank = !lines[i].trim();
  if (kind === "list") {
    const next = lines[i + 1] ?? "";
    if (blank) return ITEM.test(next) || /^\s{2,}\S/.test(next);
    return ITEM.test(lines[i]) || /^\s/.test(lines[i]) || kindAt(lines, i) === "paragraph";
  }
  if (blank) return false;
  if (kind === "table") return lines[i].includes("|");
  if (kind === "quote") return /^\s{0,3}>/.test(lines[i]) || kindAt(lines, i) === "paragraph";
  return kindAt(lines, i) === "paragraph";
}

const RENDER = {
  code: ({ lines }) => {
    const [, fence, language] = FENCE.exec(lines[0]);
    const closed = lines.length > 1 && isClosing(lines.at(-1), fence);
    return codeBlock(lines.slice(1, closed ? -1 : undefined).join("\n"), language);
  },
  heading: ({ lines }) => {
    const [, marks, text] = HEADING.exec(lines[0]);
    // The page's own headings are first and second.
    return el(`h${Math.min(6, marks.length + 2)}`, {}, inline(text));
  },
  rule: () => el("hr"),
  quote: ({ lines }, depth) => el("blockquote", {}, render(lines.map((line) => line.replace(/^\s{0,3}>\s?/, "")).join("\n"), depth + 1)),
  list: ({ lines }, depth) => list(lines, depth),
  table: ({ lines }) => table(lines),
  paragraph: ({ lines }) => el("p", {}, withBreaks(lines)),
};

function withBreaks(lines) {
  return lines.flatMap((line, i) => (i ? [el("br"), ...inline(line.trim())] : inline(line.trim())));
}

/** The nodes of a whole text. */
export function render(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  return blocks(text).map((block) => RENDER[block.kind](block, depth));
}

function list(lines, depth) {
  const [, base, marker] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(marker);
  const node = el(ordered ? "ol" : "ul", ordered && parseInt(marker) !== 1 ? { start: parseInt(marker) } : {});
  let item = [];
  const close = () => item.length && node.append(el("li", {}, tight(render(item.join("\n"), depth + 1))));
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= base.length + 1) {
      close();
      item = [match[3]];
    } else {
      item.push(line.replace(/^(\t| {1,4})/, ""));
    }
  }
  close();
  return node;
}

/** An item of one paragraph (and perhaps a list) needs no paragraph. */
function tight(nodes) {
  const first = nodes[0];
  return first?.tagName === "P" && nodes.length <= 2 ? [...first.childNodes, ...nodes.slice(1)] : nodes;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
  const row = (line, tag) => el("tr", {}, cells(line).map((cell) => el(tag, {}, cell)));
  const head = el("thead", {}, row(lines[0], "th"));
  const body = el("tbody", {}, lines.slice(2).map((line) => row(line, "td")));
  return el("div", { class: "table", tabindex: 0 }, el("table", {}, head, body));
}

function codeBlock(text, language) {
  const code = el("code", { text });
  const caption = el("figcaption", {}, el("span", { text: language || "code" }), copyButton(() => code.textContent));
  return el("figure", { class: "code" }, caption, el("pre", { tabindex: 0 }, code));
}

const PAIRS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

/** The nodes of a line: code, emphasis, links. */
export function inline(text, depth = 0) {
  const nodes = [];
  const hopeless = new Set();
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(plain);
    plain = "";
  };
  for (let i = 0; i < text.length; ) {
    const found = depth < MAX_DEPTH ? spanAt(text, i, hopeless, depth) : null;
    if (found) {
      flush();
      nodes.push(found.node);
      i = found.end;
    } else if (text[i] === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else {
      plain += text[i++];
    }
  }
  flush();
  return nodes;
}

/** What begins at `i`, if anything. A mark whose end was not found once is not looked for again: `hopeless`. */
function spanAt(text, i, hopeless, depth) {
  const char = text[i];
  if (char === "`") return codeSpan(text, i, hopeless);
  if (char === "[" || (char === "!" && text[i + 1] === "[")) return link(text, i, depth);
  if (char === "h" && (i === 0 || /[\s(<"']/.test(text[i - 1]))) return bareLink(text, i);
  for (const [mark, tag] of PAIRS) {
    if (char === mark[0] && text.startsWith(mark, i)) return pair(text, i, mark, tag, hopeless, depth);
  }
  return null;
}

function closing(text, mark, from, hopeless) {
  if (hopeless.has(mark)) return -1;
  const end = text.indexOf(mark, from);
  if (end < 0) hopeless.add(mark);
  return end;
}

function codeSpan(text, i, hopeless) {
  let width = 1;
  while (text[i + width] === "`") width++;
  if (width > 8) return null;
  const mark = "`".repeat(width);
  const end = closing(text, mark, i + width, hopeless);
  return end < 0 ? null : { node: el("code", { text: text.slice(i + width, end).trim() || " " }), end: end + width };
}

function pair(text, i, mark, tag, hopeless, depth) {
  const from = i + mark.length;
  // A mark before a space is a mark; an underscore within a word is a letter.
  if (!text[from] || /\s/.test(text[from])) return null;
  if (mark[0] === "_" && /\w/.test(text[i - 1] ?? "")) return null;
  const end = closing(text, mark, from + 1, hopeless);
  if (end < 0 || /\s/.test(text[end - 1])) return null;
  return { node: el(tag, {}, inline(text.slice(from, end), depth + 1)), end: end + mark.length };
}

function link(text, i, depth) {
  const open = text[i] === "!" ? i + 2 : i + 1;
  const match = /^([^\[\]]*)\]\(\s*([^\s()]+)[^()]*\)/.exec(text.slice(open, open + MAX_LINK));
  const target = match && safeTarget(match[2]);
  if (!target) return null;
  return { node: anchor(target, match[1] ? inline(match[1], depth + 1) : [target]), end: open + match[0].length };
}

function bareLink(text, i) {
  const match = /^https?:\/\/[^\s<>()]+[^\s<>().,;:!?"'\]*_`]/.exec(text.slice(i, i + MAX_LINK));
  return match && safeTarget(match[0]) ? { node: anchor(match[0], [match[0]]), end: i + match[0].length } : null;
}

function safeTarget(target) {
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(target).protocol) ? target : null;
  } catch {
    return null;
  }
}

const anchor = (href, children) => el("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, children);

/** A text that grows: blocks that did not change keep their nodes (and what a reader has selected in them). */
export class MarkdownView {
  constructor() {
    this.element = el("div", { class: "prose" });
    this._sources = [];
  }

  update(text) {
    const next = blocks(text);
    const sources = next.map((block) => block.lines.join("\n"));
    let same = 0;
    while (same < sources.length && sources[same] === this._sources[same]) same++;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    this.element.append(...next.slice(same).map((block) => RENDER[block.kind](block, 0)));
    this._sources = sources;
  }
}
