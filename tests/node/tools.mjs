// Runs tool loops with the official OpenAI SDK for node against the gateway at OPENAI_BASE_URL, and prints what came
// of each as JSON. tests/real/test_node_tools.py scripts the model and judges the results.

import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const model = "gpt-5.5";
const question = { role: "user", content: "How is the weather?" };
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const about = { name: "weather", description: "The weather of a city.", parameters };

function station() {
  const cities = [];
  const weather = ({ city }) => {
    cities.push(city);
    return `sunny in ${city}`;
  };
  return { cities, weather };
}

async function runTools(stream) {
  const { cities, weather } = station();
  const tools = [{ type: "function", function: { ...about, function: weather, parse: JSON.parse } }];
  const runner = client.chat.completions.runTools({ model, messages: [question], tools, stream });
  return { text: await runner.finalContent(), cities };
}

async function responses(ask) {
  const { cities, weather } = station();
  const input = [question];
  for (;;) {
    const response = await ask({ model, input, tools: [{ type: "function", ...about, strict: true }] });
    input.push(...response.output);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return { text: response.output_text, cities };
    for (const { call_id, arguments: given } of calls) {
      input.push({ type: "function_call_output", call_id, output: weather(JSON.parse(given)) });
    }
  }
}

const results = {
  chat: await runTools(false),
  chatStream: await runTools(true),
  responses: await responses((body) => client.responses.create(body)),
  responsesStream: await responses((body) => client.responses.stream(body).finalResponse()),
};
console.log(JSON.stringify(results));
