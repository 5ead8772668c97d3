// Lets the gateway at OPENAI_BASE_URL keep conversations, with the official OpenAI SDK for node, and prints what came
// back as JSON. tests/real/test_node_state.py scripts the model and judges the results.

import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const model = "gpt-5.5";
const listed = async (pages) => {
  const texts = [];
  for await (const item of pages) texts.push(item.content[0].text);
  return texts;
};

const first = await client.responses.create({ model, input: "first" });
const second = await client.responses.create({ model, input: "second", previous_response_id: first.id });
const again = await client.responses.retrieve(second.id);
const context = await listed(client.responses.inputItems.list(second.id, { order: "asc", limit: 2 }));
await client.responses.delete(first.id);
const gone = await client.responses.retrieve(first.id).catch(({ status, code }) => ({ status, code }));

const { id } = await client.conversations.create({ metadata: { topic: "demo" } });
await client.responses.create({ model, input: "in talk", conversation: id });
const talk = await listed(client.conversations.items.list(id, { order: "asc" }));
const { metadata } = await client.conversations.update(id, { metadata: { topic: "other" } });
const { deleted } = await client.conversations.delete(id);

const types = [];
const stream = await client.responses.create({ model, input: "later", background: true, stream: true });
let later = "";
for await (const event of stream) {
  if (event.type === "response.created") later = event.response.id;
  types.push(event.type);
}
const rest = [];
for await (const event of await client.responses.retrieve(later, { stream: true, starting_after: 4 })) {
  rest.push(event.type);
}
const resumed = types.length > 5 && rest.join() === types.slice(5).join();

const chat = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: "chat" }],
  store: true,
  metadata: { topic: "demo" },
});
const found = [];
for await (const each of client.chat.completions.list({ metadata: { topic: "demo" } })) found.push(each.id === chat.id);

console.log(
  JSON.stringify({ texts: [first, second, again].map((one) => one.output_text), context, gone, talk, metadata, deleted, resumed, found }),
);
