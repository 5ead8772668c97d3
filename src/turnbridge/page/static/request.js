// The playground's request: built from the form, and shown as curl, Python and node on each API.

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

const textOf = ({ content }) => (typeof content === 'string' ? content : content.map((part) => part.text ?? '').join(''));
const partsOf = ({ content }, write) => (typeof content === 'string' ? content : content.length === 1 && content[0].type === 'input_text' ? content[0].text : content.map(write));
const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
const functionsOf = (body) => (body.tools ?? []).filter(({ type }) => type === 'function');
const searches = (body) => (body.tools ?? []).some(({ type }) => type === 'web_search');
const some = (list) => (list.length ? list : undefined);

/** Return the head and the base64 of a data URL. */
function dataOf(url) {
  const [, kind, data] = /^data:([^;,]*)[^,]*,(.*)$/s.exec(url) ?? [null, 'application/octet-stream', ''];
  return { kind, data };
}

/** Return items as messages; calls of the model belong to its message before them. */
function messagesOf(items, { said, called, result }) {
  const messages = [];
  for (const item of items) {
    if (item.type === 'function_call') {
      if (messages.at(-1)?.role !== 'assistant') messages.push({ role: 'assistant', content: '' });
      called(messages.at(-1), item);
    } else messages.push(item.type === 'function_call_output' ? result(item, items.find(({ type, call_id: id }) => type === 'function_call' && id === item.call_id)) : said(item));
  }
  return messages;
}

const withInstructions = (body, messages) => [...(body.instructions ? [{ role: 'system', content: body.instructions }] : []), ...messages];
const chatTools = (body) => some(functionsOf(body).map(({ type, ...rest }) => ({ type, function: rest })));

function asChat(body) {
  const part = (each) => (each.type === 'input_image' ? { type: 'image_url', image_url: { url: each.image_url } }
    : each.type === 'input_file' ? { type: 'file', file: { filename: each.filename, file_data: each.file_data } } : { type: 'text', text: each.text });
  const messages = messagesOf(body.input, {
    said: (item) => ({ role: item.role, content: item.role === 'user' ? partsOf(item, part) : textOf(item) }),
    called: (message, { call_id: id, name, arguments: text }) => { (message.tool_calls ??= []).push({ id, type: 'function', function: { name, arguments: text } }); },
    result: ({ call_id: id, output }) => ({ role: 'tool', tool_call_id: id, content: output }),
  });
  const { type, ...schema } = body.text?.format ?? {};
  return given({
    model: body.model, messages: withInstructions(body, messages), reasoning_effort: body.reasoning.effort, tools: chatTools(body),
    web_search_options: searches(body) ? {} : undefined, response_format: type && { type, json_schema: schema }, stream: true,
  });
}

function asMessages(body) {
  const part = (each) => {
    if (each.type === 'input_text') return { type: 'text', text: each.text };
    const { kind, data } = dataOf(each.image_url ?? each.file_data);
    if (each.type === 'input_image') return { type: 'image', source: { type: 'base64', media_type: kind, data } };
    const source = kind.startsWith('text/') ? { type: 'text', media_type: 'text/plain', data: decoded(data) } : { type: 'base64', media_type: kind, data };
    return { type: 'document', title: each.filename, source };
  };
  const messages = messagesOf(body.input, {
    said: (item) => ({ role: item.role, content: item.role === 'user' ? partsOf(item, part) : textOf(item) }),
    called: (message, { call_id: id, name, arguments: text }) => {
      if (typeof message.content === 'string') message.content = message.content ? [{ type: 'text', text: message.content }] : [];
      message.content.push({ type: 'tool_use', id, name, input: JSON.parse(text || '{}') });
    },
    result: ({ call_id: id, output }) => ({ role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: output }] }),
  }).reduce((all, message) => {
    // The results of parallel calls belong into one message.
    const before = all.at(-1);
    if (before?.role === 'user' && before.content[0]?.type === 'tool_result' && message.content[0]?.type === 'tool_result') before.content.push(...message.content);
    else all.push(message);
    return all;
  }, []);
  const tools = [...functionsOf(body).map(({ name, description, parameters }) => given({ name, description, input_schema: parameters })), ...(searches(body) ? [{ type: 'web_search_20250305', name: 'web_search' }] : [])];
  const output = given({ effort: body.reasoning.effort, format: body.text && { type: 'json_schema', schema: body.text.format.schema } });
  return given({
    model: body.model, max_tokens: 32_000, system: body.instructions, messages, tools: some(tools), thinking: { type: 'adaptive' },
    output_config: Object.keys(output).length ? output : undefined, stream: true,
  });
}

function asOllama(body) {
  const messages = messagesOf(body.input, {
    said: (item) => given({ role: item.role, content: textOf(item), images: Array.isArray(item.content) ? some(item.content.filter(({ type }) => type === 'input_image').map(({ image_url: url }) => dataOf(url).data)) : undefined }),
    called: (message, { call_id: id, name, arguments: text }) => { (message.tool_calls ??= []).push({ id, function: { name, arguments: JSON.parse(text || '{}') } }); },
    result: ({ call_id: id, output }, call) => given({ role: 'tool', tool_call_id: id, tool_name: call?.name, content: output }),
  });
  return given({ model: body.model, messages: withInstructions(body, messages), tools: chatTools(body), format: body.text?.format.schema, think: body.reasoning.effort ?? true, stream: true });
}

const decoded = (data) => new TextDecoder().decode(Uint8Array.from(atob(data), (each) => each.charCodeAt(0)));

/** What differs between the APIs: the body, the route, the client of each language, its call, and the text of an event. */
const APIS = [
  {
    name: 'Responses', write: (body) => body, route: '/v1/responses', auth: '-H "Authorization: Bearer $OPENAI_API_KEY"',
    python: ['from openai import OpenAI', 'OpenAI(base_url="{url}/v1")  # reads OPENAI_API_KEY', 'responses.create'],
    node: ["import OpenAI from 'openai';", "new OpenAI({ baseURL: '{url}/v1' }); // reads OPENAI_API_KEY", 'responses.create'],
    text: [['type', 'response.output_text.delta'], 'event.delta'],
  }, {
    name: 'Chat Completions', write: asChat, route: '/v1/chat/completions', auth: '-H "Authorization: Bearer $OPENAI_API_KEY"',
    python: ['from openai import OpenAI', 'OpenAI(base_url="{url}/v1")  # reads OPENAI_API_KEY', 'chat.completions.create'],
    node: ["import OpenAI from 'openai';", "new OpenAI({ baseURL: '{url}/v1' }); // reads OPENAI_API_KEY", 'chat.completions.create'],
    text: [null, 'event.choices[0].delta.content'],
  }, {
    name: 'Messages (Anthropic)', write: asMessages, route: '/v1/messages', auth: '-H "x-api-key: $ANTHROPIC_API_KEY" -H "anthropic-version: 2023-06-01"',
    python: ['from anthropic import Anthropic', 'Anthropic(base_url="{url}")  # reads ANTHROPIC_API_KEY', 'messages.create'],
    node: ["import Anthropic from '@anthropic-ai/sdk';", "new Anthropic({ baseURL: '{url}' }); // reads ANTHROPIC_API_KEY", 'messages.create'],
    text: [['delta.type', 'text_delta'], 'event.delta.text'],
  }, {
    name: 'Ollama', listener: 'ollama', write: asOllama, route: '/api/chat', auth: '',
    python: ['from ollama import Client', 'Client(host="{url}")', 'chat'],
    node: ["import { Ollama } from 'ollama';", "new Ollama({ host: '{url}' });", 'chat'],
    text: [null, 'event.message.content'], note: 'Programs on the machine of the gateway need no key. Ollama’s API has no files and no web search.',
  },
];

/** Return the APIs that are served, here or at one of the other URLs, each with its name, a note, and a program in each language. */
export function snippets(others) {
  return APIS.filter(({ listener }) => !listener || others[listener]).map((api) => {
    const url = api.listener ? others[api.listener] : location.origin;
    const program = (write) => (body) => write(api, url, api.write(body));
    return { name: api.name, note: api.note, languages: [['curl', program(curl)], ['Python', program(python)], ['node', program(node)]] };
  });
}

function curl({ route, auth }, url, body) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${url}${route} \\\n  ${auth}${auth && ' '}-H "Content-Type: application/json" \\\n  -d '${quoted}'`;
}

function python({ python: [imported, client, call], text: [only, text] }, url, body) {
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${pythonValue(value, 1)},`).join('\n');
  // Not every event has a delta.
  const test = only?.[0] === 'delta.type' ? `event.type == "content_block_delta" and event.delta.type == "${only[1]}"` : only ? `event.${only[0]} == "${only[1]}"` : text.includes('choices') ? 'event.choices' : 'True';
  const shown = `print(${text}${only ? '' : ' or ""'}, end="", flush=True)`;
  return `${imported}\n\nclient = ${client.replace('{url}', url)}\nstream = client.${call}(\n${fields}\n)\nfor event in stream:\n    ${test === 'True' ? shown : `if ${test}:\n        ${shown}`}\n`;
}

function node({ node: [imported, client, call], text: [only, text] }, url, body) {
  const safe = text.replace('choices[0].', 'choices[0]?.');
  const shown = `process.stdout.write(${only ? safe : `${safe} ?? ''`});`;
  const test = only && `event.${only[0].replace('.', '?.')} === '${only[1]}'`;
  return `${imported}\n\nconst client = ${client.replace('{url}', url)}\nconst stream = await client.${call}(${JSON.stringify(body, null, 2)});\nfor await (const event of stream) {\n  ${test ? `if (${test}) ` : ''}${shown}\n}\n`;
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
