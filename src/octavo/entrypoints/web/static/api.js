// Calls to the server that this page came from, with the key where there is one.

import { eventData } from "./sse.js";

// The page may live under a proxy's prefix: everything is relative to where this file came from.
export const BASE = new URL("..", import.meta.url);
const KEY = "octavo.key";

/** What the server refused, in its own words. `status` is 0 where it could not be reached. */
export class ApiError extends Error {
  constructor(message, status = 0, param = null) {
    super(message);
    this.status = status;
    this.param = param;
  }

  static from(status, body) {
    const error = body?.error ?? {};
    const message = error.message ?? body?.message ?? `The server answered with status ${status}.`;
    return new ApiError(message, status, error.param ?? null);
  }
}

export const apiKey = {
  get: () => {
    try {
      return sessionStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  },
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** Fetch `path` (no leading slash). Refusals are thrown as `ApiError`; an abort passes as it is. */
async function call(path, { body, signal } = {}) {
  const headers = {};
  if (apiKey.get()) headers.Authorization = `Bearer ${apiKey.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached.");
  }
  if (answer.ok) return answer;
  throw ApiError.from(answer.status, await answer.json().catch(() => null));
}

export const getText = async (path, signal) => (await call(path, { signal })).text();
export const getJson = async (path, signal) => (await call(path, { signal })).json();
export const postJson = async (path, body, signal) => (await call(path, { body, signal })).json();

/** The events of a streamed answer. An error event in the stream is thrown like a refusal. */
export async function* stream(path, body, signal) {
  const answer = await call(path, { body, signal });
  for await (const data of eventData(answer.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw ApiError.from(event.error.code ?? 500, event);
    yield event;
  }
  throw new ApiError("The stream ended before the answer did.");
}
