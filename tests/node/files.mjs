// Uploads, shows and deletes files at the gateway at OPENAI_BASE_URL, with the official OpenAI SDK for node, and prints
// what came back as JSON. tests/real/test_uploaded_files.py scripts the model and judges the results.

import OpenAI, { toFile } from "openai";

const client = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const model = "gpt-5.5";
const told = ({ status, code, param }) => ({ status, code, param });

const file = await client.files.create({
  file: await toFile(Buffer.from("buy milk"), "list.txt"),
  purpose: "user_data",
  expires_after: { anchor: "created_at", seconds: 3600 },
});
const content = await (await client.files.content(file.id)).text();
let listed = false;
for await (const each of client.files.list({ limit: 1 })) listed ||= each.id === file.id;

const response = await client.responses.create({
  model,
  input: [{ role: "user", content: [{ type: "input_file", file_id: file.id }] }],
});
const chat = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: [{ type: "file", file: { file_id: file.id } }] }],
});
const { deleted } = await client.files.delete(file.id);
const { status, code } = await client.files.retrieve(file.id).catch(told);
const refused = await client.files
  .create({ file: await toFile(Buffer.from("{}"), "a.jsonl"), purpose: "batch" })
  .catch(told);

console.log(
  JSON.stringify({
    filename: file.filename,
    bytes: file.bytes,
    lifetime: file.expires_at - file.created_at,
    content,
    listed,
    answers: [response.output_text, chat.choices[0].message.content],
    deleted,
    gone: { status, code },
    refused,
  }),
);
