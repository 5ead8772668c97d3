// The official Ollama client for node, against a gateway: prints what it saw.
import { Ollama } from "ollama";

const client = new Ollama({ host: process.env.OLLAMA_HOST });
const model = "gpt-5.5";
const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      description: "The weather.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

const names = (await client.list()).models.map((each) => each.model);
const shown = await client.show({ model });
const running = (await client.ps()).models;
const messages = [{ role: "user", content: "How is the weather in node?" }];
const first = await client.chat({ model, messages, tools });
messages.push(first.message, { role: "tool", tool_name: "weather", content: "sun" });
const pieces = [];
for await (const piece of await client.chat({ model, messages, tools, stream: true })) pieces.push(piece);
const text = await client.generate({ model, prompt: "Name a colour.", format: "json" });
let failure;
try {
  await client.chat({ model: "llama3.2", messages });
} catch (error) {
  failure = { status: error.status_code, message: error.message };
}
console.log(
  JSON.stringify({
    listed: names.includes(model),
    capabilities: shown.capabilities,
    running,
    call: first.message.tool_calls[0].function,
    pieces: pieces.map((piece) => [piece.message.content, piece.done]),
    text: JSON.parse(text.response),
    failure,
  }),
);
