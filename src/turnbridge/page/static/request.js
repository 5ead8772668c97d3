// The playground's request: built from the form, and shown as curl, Python and node.

/** Return the body of the request that the form and the conversation make. */
export function bodyOf(form, input) {
  const body = { model: form.model, input };
  if (form.instructions) body.instructions = form.instructions;
  body.reasoning = { ...(form.effort ? { effort: form.effort } : {}), summary: 'auto' };
  const tools = [...(form.functions ?? []), ...(form.search ? [{ type: 'web_search' }] : [])];
  if (tools.length) body.tools = tools;
  if (form.schema) body.text = { format: { type: 'json_schema', name: 'answer', strict: true, schema: form.schema } };
  return { ...body, stream: true, store: false };
}

/** Return the functions of a text: a list, or one, each in the API's own form or with its fields inside `function`. */
export function functionsIn(text) {
  if (!text.trim()) return [];
  const given = JSON.parse(text);
  return (Array.isArray(given) ? given : [given]).map((tool) => ({ type: 'function', ...(tool.function ?? tool) }));
}

/** Return the request as a program, for each language. */
export const SNIPPETS = [['curl', curl], ['Python', python], ['node', node]];

const baseUrl = () => `${location.origin}/v1`;

function curl(body) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${baseUrl()}/responses \\
  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\
  -d '${quoted}'`;
}

function python({ stream, ...body }) {
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${pythonValue(value, 1)},`).join('\n');
  return `from openai import OpenAI

client = OpenAI(base_url="${baseUrl()}")  # reads OPENAI_API_KEY
stream = client.responses.create(
${fields}
    stream=${stream ? 'True' : 'False'},
)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
`;
}

function node(body) {
  return `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: '${baseUrl()}' }); // reads OPENAI_API_KEY
const stream = await client.responses.create(${JSON.stringify(body, null, 2)});
for await (const event of stream) {
  if (event.type === 'response.output_text.delta') process.stdout.write(event.delta);
}
`;
}

/** Return a JSON value as Python writes it. */
export function pythonValue(value, depth = 0) {
  const indent = '    '.repeat(depth + 1);
  const end = '    '.repeat(depth);
  if (value === null) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  // A JSON string is a Python string, but for halves of surrogate pairs, which JSON.stringify escapes alike.
  if (typeof value !== 'object') return JSON.stringify(value);
  if (Array.isArray(value)) {
    return value.length ? `[\n${value.map((each) => `${indent}${pythonValue(each, depth + 1)},\n`).join('')}${end}]` : '[]';
  }
  const entries = Object.entries(value);
  return entries.length ? `{\n${entries.map(([name, each]) => `${indent}${JSON.stringify(name)}: ${pythonValue(each, depth + 1)},\n`).join('')}${end}}` : '{}';
}
