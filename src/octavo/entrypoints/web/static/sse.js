// Server-sent events from a fetch: EventSource can neither POST nor send a key.

/** The `data` of each event of a byte stream, as text. Lines may end in any of the three ways and be cut anywhere. */
export async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      rest += value;
      // A carriage return at the end may be the first half of CRLF: it waits for the next piece.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    // Leaving the loop early (a stop) must end the request, not only stop reading it.
    reader.cancel().catch(() => {});
  }
}
