// Server-sent events by fetch, because an EventSource cannot send a token.

import { call } from "./common.js";

// Longer than any event of this API.
const LONGEST = 4 * 1024 * 1024;
const RECONNECT_MS = 2000;

// Calls `onEvent` for every event, and reconnects for ever. Calls `onConnection` with true or false.
export async function follow(path, onEvent, onConnection) {
  for (;;) {
    try {
      const response = await call(path, { headers: { accept: "text/event-stream" } });
      onConnection(true);
      await readAll(response, onEvent);
    } catch (error) {
      onConnection(false, error);
      if (error.status === 401 || error.status === 403) return;
    }
    onConnection(false);
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}

async function readAll(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    if (text.length > LONGEST) throw new Error("an event is too long");
    blocks.forEach((block) => readOne(block, onEvent));
  }
}

function readOne(block, onEvent) {
  const field = (name) => block.split("\n").filter((line) => line.startsWith(`${name}:`))
    .map((line) => line.slice(name.length + 1).trimStart()).join("\n");
  const data = field("data");
  if (data) onEvent(field("event"), JSON.parse(data));
}
