// The official anthropic SDK for node, against a gateway: prints what it saw.
import Anthropic from "@anthropic-ai/sdk";

const settings = { baseURL: process.env.ANTHROPIC_BASE_URL, maxRetries: 0 };
const client = new Anthropic({ ...settings, apiKey: process.env.OPENAI_API_KEY });
const older = new Anthropic({ ...settings, apiKey: null, defaultHeaders: { "anthropic-version": "2023-06-01", "x-api-key": process.env.OPENAI_API_KEY } });
const model = "claude-gpt-5.5";
const tools = [
  { name: "weather", description: "The weather.", input_schema: { type: "object", properties: { city: { type: "string" } } } },
];

const messages = [{ role: "user", content: "How is the weather in node?" }];
const stream = client.messages.stream({ model, max_tokens: 1000, messages, tools, thinking: { type: "adaptive" } });
const kinds = [];
for await (const event of stream) kinds.push(event.type);
const first = await stream.finalMessage();
const call = first.content.find((block) => block.type === "tool_use");
messages.push(
  { role: "assistant", content: first.content },
  { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "sun" }] },
);
const second = await client.messages.create({ model, max_tokens: 1000, messages, tools, thinking: { type: "adaptive" } });
const third = await older.messages.create({ model, max_tokens: 1000, temperature: 0.5, messages: [{ role: "user", content: "hi" }] });
const counted = await client.messages.countTokens({ model, messages: [{ role: "user", content: "hi" }] });
const models = [];
for await (const each of client.models.list()) models.push(each.id);
let failure;
try {
  await client.messages.create({ model, max_tokens: 1000, temperature: 0.5, messages: [{ role: "user", content: "hi" }] });
} catch (error) {
  failure = { status: error.status, type: error.error.error.type, named: Boolean(error.requestID) };
}
console.log(
  JSON.stringify({
    first: first.content.map((block) => block.type),
    started: kinds.filter((kind) => kind === "message_start").length,
    input: call.input,
    reasons: [first.stop_reason, second.stop_reason, third.stop_reason],
    texts: [second, third].map((message) => message.content.at(-1).text),
    counted: counted.input_tokens,
    listed: models.includes(model),
    failure,
  }),
);
