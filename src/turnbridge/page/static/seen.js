// What the client sent, what Codex was told and what the model saw, as lines that can be compared; and their difference.

const MOST_LINES = 3000;
const LONGEST_LINE = 1000;
// More than this many pairs of lines are not compared one by one.
const MOST_PAIRS = 4_000_000;

/** Return the three texts of a traced request, each as its lines. */
export function accounts({ route, client, codex, model }) {
  const said = codex.map((each) => codexPieces(each));
  const started = codex.some(({ method }) => method === 'thread/start');
  const sent = clientPieces(route ?? '', client[0]?.body ?? null);
  const pick = (pieces, kinds) => lines(pieces.filter(({ kind }) => kinds.includes(kind)));
  const kinds = started ? ['head', 'item'] : ['item'];
  return {
    started,
    client: lines(sent), comparable: pick(sent, kinds),
    codex: pick(said.flat(), ['head', 'item']), told: pick(said.flat(), ['item']),
    model: lines(model.map(({ params }) => itemPieces(params?.item)).flat()),
  };
}

const head = (name, text) => ({ kind: 'head', name, text });
const item = (name, text) => ({ kind: 'item', name, text });

function clientPieces(route, body) {
  if (body === null || typeof body !== 'object') return [item('body', String(body ?? '(none)'))];
  const pieces = [head('model', body.model)];
  const instructions = textOf(body.instructions ?? body.system);
  if (instructions) pieces.push(head('instructions', instructions));
  pieces.push(...(body.tools ?? []).flatMap(toolPieces));
  if (route.includes('/messages')) return [...pieces, ...list(body.messages).flatMap(anthropicPieces)];
  if (body.messages) return [...pieces, ...list(body.messages).flatMap(chatPieces)];
  if (body.prompt !== undefined) return [...pieces, item('user', body.prompt)];
  const input = typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : list(body.input);
  return [...pieces, ...input.flatMap(itemPieces)];
}

function codexPieces({ method, params, result }) {
  if (method === 'thread/start') {
    const pieces = [head('model', params.model)];
    if (params.baseInstructions) pieces.push(head('instructions', params.baseInstructions));
    return [...pieces, ...list(params.dynamicTools).flatMap(toolPieces)];
  }
  if (method === 'thread/inject_items') return list(params.items).flatMap(itemPieces);
  if (method === 'turn/start') return list(params.input).map((part) => item('user', partText(part)));
  return result ? [item('output', list(result.contentItems).map(partText).join('\n'))] : [];
}

/** Return an item of the Responses API, which is also Codex's. */
function itemPieces(given) {
  if (!given) return [];
  const { type = 'message', role } = given;
  if (type === 'message') return [item(role, textOf(given.content))];
  if (type.endsWith('_output')) return [item('output', textOf(given.output))];
  if (type === 'reasoning') return [item('reasoning', list(given.summary).map(partText).join('\n') || '(encrypted)')];
  if (type.endsWith('_call')) return [item(`call ${given.name ?? type}`, pretty(given.arguments ?? given.input ?? given.action))];
  return [item(type, pretty(given))];
}

function chatPieces({ role, content, tool_calls: calls, images }) {
  const pictures = list(images).map((each) => `[image, ${each.length} characters]`);
  const text = [textOf(content), ...pictures].filter(Boolean).join('\n');
  const pieces = text ? [item(role === 'tool' ? 'output' : role, text)] : [];
  return [...pieces, ...list(calls).map(({ function: called }) => item(`call ${called?.name}`, pretty(called?.arguments)))];
}

function anthropicPieces({ role, content }) {
  if (typeof content === 'string') return [item(role, content)];
  return list(content).map((block) => {
    if (block.type === 'tool_use') return item(`call ${block.name}`, pretty(block.input));
    if (block.type === 'tool_result') return item('output', textOf(block.content));
    if (block.type === 'thinking') return item('reasoning', block.thinking || '(encrypted)');
    return item(role, partText(block));
  });
}

function toolPieces(tool) {
  if (tool.tools) return [head(`namespace ${tool.name}`, tool.description ?? ''), ...tool.tools.flatMap(toolPieces)];
  const given = tool.function ?? tool;
  if (!given.name) return [head(`tool ${given.type}`, '')];
  const schema = given.parameters ?? given.input_schema ?? given.inputSchema;
  return [head(`tool ${given.name}`, [given.description, schema && pretty(schema)].filter(Boolean).join('\n'))];
}

const list = (value) => (Array.isArray(value) ? value : []);
const textOf = (content) => (typeof content === 'string' ? content : list(content).map(partText).join('\n'));

function partText(part) {
  if (typeof part === 'string') return part;
  const url = part.image_url?.url ?? part.image_url ?? part.imageUrl ?? part.url ?? part.source?.data ?? part.file_data ?? part.file?.file_data;
  return part.text ?? part.refusal ?? (typeof url === 'string' ? `[${part.type}, ${url.length} characters]` : pretty(part));
}

/** Return JSON on several lines, with sorted keys, so that the order of members is no difference. */
function pretty(value) {
  if (value === undefined || value === null) return '';
  let parsed = value;
  if (typeof value === 'string') {
    try {
      parsed = JSON.parse(value);
    } catch {
      return value;
    }
  }
  return JSON.stringify(sorted(parsed), null, 1);
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

function lines(pieces) {
  return pieces.flatMap(({ name, text }) => `${name}: ${text ?? ''}`.split('\n').map((line, at) => (at ? `  ${line}` : line)))
    .map((line) => (line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)}… (${line.length} characters)` : line)).slice(0, MOST_LINES);
}

/** Return the lines of both texts in order, each with `+` if only the second has it, `-` if only the first. */
export function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const a = before.slice(start, before.length - end);
  const b = after.slice(start, after.length - end);
  const same = (from, to) => after.slice(from, to).map((line) => [' ', line]);
  return [...same(0, start), ...middle(a, b), ...same(after.length - end, after.length)];
}

function middle(a, b) {
  if (a.length * b.length > MOST_PAIRS) return [...a.map((line) => ['-', line]), ...b.map((line) => ['+', line])];
  // The length of the longest common part of what follows each pair of lines.
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([' ', b[j]]);
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      found.push(['-', a[i]]);
      i += 1;
    } else {
      found.push(['+', b[j]]);
      j += 1;
    }
  }
  return found;
}
