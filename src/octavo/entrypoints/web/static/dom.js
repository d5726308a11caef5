// Building elements. Text only ever becomes text nodes: nothing here parses HTML.

/** An element with properties, `on...` handlers and children (nodes or strings; null and false are left out). */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Copy `text`, also where the page is not served securely and browsers keep the clipboard from it. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = el("textarea", { class: "hidden" });
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (!copied) throw new Error("The browser does not let this page copy.");
}

/** A button that copies what `text()` gives and says so. */
export function copyButton(text, label = "Copy") {
  const button = el("button", { type: "button", class: "link", text: label });
  button.addEventListener("click", async () => {
    try {
      await copyText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** Read and write JSON in one of the browser's stores; a store that is full or forbidden is as good as empty. */
export const stored = {
  read(store, name, fallback) {
    try {
      return JSON.parse(window[store].getItem(name)) ?? fallback;
    } catch {
      return fallback;
    }
  },
  write(store, name, value) {
    try {
      window[store].setItem(name, JSON.stringify(value));
    } catch {
      // Nothing depends on it.
    }
  },
};

let noticeTimer = 0;

/** A short line at the foot of the page. */
export function notice(text) {
  const line = byId("notice");
  line.textContent = text;
  line.hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (line.hidden = true), 4000);
}
