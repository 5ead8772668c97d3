// Drives the official OpenAI SDK for node against the gateway at OPENAI_BASE_URL, and prints what it got as JSON.
// What the model does is decided by the words it is asked; tests/real/test_node.py scripts it and judges the results.

import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const model = "gpt-5.5";
const said = (content) => ({ model, messages: [{ role: "user", content }] });
const asked = (input) => ({ model, input });

const schema = {
  type: "object",
  properties: { name: { type: "string" }, rgb: { type: "array", items: { type: "integer" } } },
  required: ["name", "rgb"],
  additionalProperties: false,
};
const format = { type: "json_schema", name: "colour", schema, strict: true };

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    const { status, code, param, type } = error;
    const retryAfter = error.headers?.get("retry-after") ?? null;
    return { class: error.constructor.name, status, code, param, type, retryAfter };
  }
  return "no failure";
}

const scenarios = {
  async chat() {
    const completion = await client.chat.completions.create(said("hello"));
    const [choice] = completion.choices;
    return { text: choice.message.content, finish: choice.finish_reason, total: completion.usage.total_tokens };
  },

  async chatStream() {
    const stream = client.chat.completions.stream({ ...said("hello"), stream_options: { include_usage: true } });
    const pieces = [];
    stream.on("content", (piece) => pieces.push(piece));
    const completion = await stream.finalChatCompletion();
    return { pieces, text: completion.choices[0].message.content, total: completion.usage.total_tokens };
  },

  async responses() {
    const response = await client.responses.create(asked("hello"));
    return { text: response.output_text, status: response.status, total: response.usage.total_tokens };
  },

  async responsesStream() {
    const stream = client.responses.stream(asked("hello"));
    const types = [];
    for await (const event of stream) types.push(event.type.replace("response.", ""));
    const response = await stream.finalResponse();
    return { types, text: response.output_text };
  },

  async chatParse() {
    const { type, ...json_schema } = format;
    const completion = await client.chat.completions.parse({
      ...said("colour"),
      response_format: { type, json_schema },
    });
    return completion.choices[0].message.parsed;
  },

  async responsesParse() {
    const response = await client.responses.parse({ ...asked("colour"), text: { format } });
    return response.output_parsed;
  },

  rateLimited: () => failure(client.responses.create(asked("too fast"))),

  rateLimitedStream: () => failure(client.chat.completions.create({ ...said("too fast"), stream: true })),

  unknownModel: () => failure(client.chat.completions.create({ ...said("hello"), model: "no-such-model" })),

  wrongKey: () => failure(client.withOptions({ apiKey: "sk-wrong" }).models.list()),

  async abortChat() {
    const stream = await client.chat.completions.create({ ...said("endless"), stream: true });
    for await (const chunk of stream) {
      const piece = chunk.choices[0].delta.content;
      if (piece) {
        stream.controller.abort();
        return piece;
      }
    }
    return "the stream ended by itself";
  },

  async abortResponses() {
    const stream = await client.responses.create({ ...asked("endless"), stream: true });
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") {
        stream.controller.abort();
        return event.delta;
      }
    }
    return "the stream ended by itself";
  },
};

const results = {};
for (const [name, run] of Object.entries(scenarios)) results[name] = await run();
console.log(JSON.stringify(results));
