// Server-sent events by fetch, because an EventSource cannot send a token.

import { call } from "./common.js";

// More than any event has: what is longer is not one of this API.
const LONGEST = 4 * 1024 * 1024;
const COME_BACK_MS = 2000;

// Tells every event, for ever. `connected` hears true and false.
export async function follow(path, tell, connected) {
  for (;;) {
    try {
      const response = await call(path, { headers: { accept: "text/event-stream" } });
      connected(true);
      await readAll(response, tell);
    } catch (error) {
      connected(false, error);
      if (error.status === 401 || error.status === 403) return;
    }
    connected(false);
    await new Promise((resolve) => setTimeout(resolve, COME_BACK_MS));
  }
}

async function readAll(response, tell) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    if (text.length > LONGEST) throw new Error("an event is too long");
    blocks.forEach((block) => readOne(block, tell));
  }
}

function readOne(block, tell) {
  const field = (name) => block.split("\n").filter((line) => line.startsWith(`${name}:`))
    .map((line) => line.slice(name.length + 1).trimStart()).join("\n");
  const data = field("data");
  if (data) tell(field("event"), JSON.parse(data));
}
