// One streamed answer, gathered from its chunks. Knows nothing of the page.

/** A message of the assistant that grows. Plain data besides: it is what the conversation keeps. */
export function newAnswer(model) {
  return {
    role: "assistant", model, content: "", reasoning: "", tool_calls: [], logprobs: [],
    finish_reason: null, usage: null, error: null, first_token_ms: null, total_ms: null, stopped: false,
  };
}

/** Add what one chat chunk brings; `elapsed` is the time since the request went out, in ms. */
export function addChunk(answer, chunk, elapsed) {
  if (chunk.usage) answer.usage = chunk.usage;
  answer.total_ms = elapsed;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta ?? {};
  answer.content += delta.content ?? "";
  answer.reasoning += delta.reasoning ?? delta.reasoning_content ?? "";
  for (const piece of delta.tool_calls ?? []) addToolCall(answer.tool_calls, piece);
  answer.logprobs.push(...(choice.logprobs?.content ?? []));
  if (answer.first_token_ms === null && (delta.content || delta.reasoning || delta.reasoning_content || delta.tool_calls))
    answer.first_token_ms = elapsed;
  if (choice.finish_reason) answer.finish_reason = choice.finish_reason;
}

function addToolCall(calls, piece) {
  const call = (calls[piece.index ?? calls.length] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (piece.id) call.id = piece.id;
  call.function.name += piece.function?.name ?? "";
  call.function.arguments += piece.function?.arguments ?? "";
}

/** Tokens a second after the first token, or null where that says nothing. */
export function tokensPerSecond(answer) {
  const tokens = answer.usage?.completion_tokens ?? 0;
  const seconds = (answer.total_ms - answer.first_token_ms) / 1000;
  return tokens > 1 && answer.first_token_ms !== null && seconds > 0 ? (tokens - 1) / seconds : null;
}

/** The messages of the API for what the page keeps: a system prompt, then turns without our own notes. */
export function requestMessages(system, messages) {
  const turns = messages.filter((message) => !message.error || message.content || message.tool_calls?.length).map(apiMessage);
  return system.trim() ? [{ role: "system", content: system }, ...turns] : turns;
}

function apiMessage(message) {
  if (message.role === "user") return { role: "user", content: message.content };
  if (message.role === "tool")
    return { role: "tool", tool_call_id: message.tool_call_id, name: message.name, content: message.content };
  const plain = { role: "assistant", content: message.content };
  if (message.reasoning) plain.reasoning = message.reasoning;
  if (message.tool_calls?.length) plain.tool_calls = message.tool_calls;
  return plain;
}

/** The same request as a command, quoted for a POSIX shell. The key is named, never written out. */
export function asCurl(url, body, withKey) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const key = withKey ? `  -H "Authorization: Bearer $OCTAVO_API_KEY" \\\n` : "";
  return `curl -N '${url}' \\\n  -H 'Content-Type: application/json' \\\n${key}  -d '${quoted}'`;
}
