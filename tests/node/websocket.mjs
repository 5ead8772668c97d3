// Drives the WebSocket of the official OpenAI SDK for node against the gateway at OPENAI_BASE_URL, and prints what came
// back as JSON. tests/real/test_websocket_clients.py scripts the model and judges the results.

import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const client = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const socket = new ResponsesWS(client);
const tools = [{ type: "function", name: "look", parameters: { type: "object", properties: {} }, strict: false }];

const ask = (fields) =>
  new Promise((resolve, reject) => {
    const events = [];
    const listen = (event) => {
      events.push(event);
      if (event.type !== "response.completed") return;
      socket.off("event", listen);
      resolve({ types: events.map(({ type }) => type), lanes: events.map((each) => each.stream_id), ...event });
    };
    socket.on("event", listen);
    socket.once("error", (error) => reject(error));
    socket.send({ type: "response.create", model: "gpt-5.5", store: false, tools, ...fields });
  });

const warm = await ask({ input: [], generate: false });
const first = await ask({ input: "look", previous_response_id: warm.response.id });
const [call] = first.response.output;
const output = { type: "function_call_output", call_id: call.call_id, output: "nothing" };
const second = await ask({ input: [output], previous_response_id: first.response.id });
const fork = await ask({ input: "fork", previous_response_id: second.response.id, stream_id: "fork" });
const refused = await ask({ input: "more", previous_response_id: "resp_nobody" }).catch(({ message, error }) => ({
  message,
  code: error?.error?.code ?? error?.code,
}));
socket.close();

const text = ({ response }) => response.output[0].content[0].text;
console.log(
  JSON.stringify({
    warm: warm.types,
    call: call.name,
    texts: [second, fork].map(text),
    lanes: [...new Set(fork.lanes)],
    types: second.types,
    refused: refused.code,
  }),
);
