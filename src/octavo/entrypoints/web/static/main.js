// Puts the parts together: the server's model, views, panels, theme, key, shortcuts.

import { apiKey, ApiError, getJson } from "./api.js";
import { Chat } from "./chat.js";
import { byId, notice, stored } from "./dom.js";
import { EnginePanel } from "./engine.js";
import { hideAlternatives } from "./probabilities.js";
import { Settings } from "./settings.js";
import { TextPage } from "./text.js";

const root = document.documentElement;
const wide = window.matchMedia("(min-width: 1100px)");
/** What is known of the server; the model is null until it has told. */
const server = { model: null, maxModelLen: null };

const settings = new Settings(byId("settings-form"));
const parts = { settings, server, onKeyNeeded: () => askForKey("The server asks for an API key.") };
const chat = new Chat(parts);
const text = new TextPage(parts);
const engine = new EnginePanel();

// -- the server ----------------------------------------------------------------------------------------------------------

async function meetServer() {
  try {
    const { data } = await getJson("v1/models");
    showModels(data);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) askForKey("The server asks for an API key.");
    else notice(error.message);
  }
}

function showModels(models) {
  const choose = byId("model");
  const byName = new Map(models.map((model) => [model.id, model]));
  const take = (name) => {
    server.model = name;
    server.maxModelLen = byName.get(name).max_model_len ?? null;
    byId("title-model").textContent = name;
    stored.write("localStorage", "octavo.model", name);
  };
  choose.replaceChildren(...models.map((model) => new Option(model.id)));
  const last = stored.read("localStorage", "octavo.model", null);
  choose.value = byName.has(last) ? last : models[0].id;
  choose.onchange = () => take(choose.value);
  choose.hidden = models.length < 2;
  byId("model-name").textContent = models.length < 2 ? models[0].id : "";
  take(choose.value);
}

function askForKey(why) {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  byId("key-text").textContent = `${why} It is sent with every call to this server, and kept in this tab until it is closed.`;
  byId("key-field").value = apiKey.get();
  dialog.showModal();
}

byId("key").addEventListener("click", () => askForKey("For servers that ask for one."));
byId("key-dialog").addEventListener("close", () => {
  if (byId("key-dialog").returnValue !== "save") return;
  apiKey.set(byId("key-field").value.trim());
  meetServer();
  engine.retry();
});
// Enter in the field means the second button, not the first of the form.
byId("key-field").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  byId("key-dialog").close("save");
});

// -- views and panels ----------------------------------------------------------------------------------------------------

const tabs = [byId("tab-chat"), byId("tab-text")];

function openTab(tab, focus = false) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  hideAlternatives();
  if (focus) tab.focus();
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => openTab(tab));
  tab.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") openTab(tabs[1 - i], true);
  });
});

/** Beside the text where there is room; over it, one at a time and closed at first, where there is not. */
function setPanel(name, open) {
  byId(name).classList.toggle("open", open);
  byId(`toggle-${name}`).setAttribute("aria-expanded", String(open));
  engine.wake();
}

const PANELS = ["settings", "engine"];
for (const name of PANELS) {
  const button = byId(`toggle-${name}`);
  button.addEventListener("click", () => {
    const open = !byId(name).classList.contains("open");
    if (!wide.matches) PANELS.forEach((other) => setPanel(other, false));
    setPanel(name, open);
    if (wide.matches) stored.write("localStorage", `octavo.panel.${name}`, open);
  });
  byId(name).querySelector(".close").addEventListener("click", () => {
    setPanel(name, false);
    button.focus();
  });
}

function placePanels() {
  for (const name of PANELS) setPanel(name, wide.matches && stored.read("localStorage", `octavo.panel.${name}`, true));
}

wide.addEventListener("change", placePanels);
placePanels();

// -- theme ---------------------------------------------------------------------------------------------------------------

const isDark = () => (root.dataset.theme ?? (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function labelTheme() {
  byId("theme").setAttribute("aria-label", isDark() ? "Light theme" : "Dark theme");
}

byId("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("octavo.theme", root.dataset.theme);
  } catch {
    // It holds until the page is left.
  }
  labelTheme();
});
labelTheme();

// -- shortcuts -----------------------------------------------------------------------------------------------------------

byId("help").addEventListener("click", () => byId("help-dialog").showModal());
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "Escape" && !event.target.closest?.("dialog")) {
    hideAlternatives();
    if (!wide.matches) placePanels();
    chat.stop();
    text.stop();
  } else if (event.key === "/" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    if (!byId("help-dialog").open) byId("help-dialog").showModal();
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    openTab(tabs[0]);
    chat.focus();
  }
});

meetServer();
engine.wake();
if (wide.matches) chat.focus();
