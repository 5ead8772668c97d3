// The playground: a conversation with a model through /v1/responses itself, as any client has it.

import { events, ownHeaders, read, send } from './api.js';
import { announce, copyButton, fill, h, problem, tabs } from './dom.js';
import { bodyOf, functionsIn, snippets } from './request.js';
import { SERVED, cachedShare, count, duration } from './words.js';

// A request body may have 16 MB, and data URLs are a third larger than what they hold.
const MOST_ATTACHED_BYTES = 8 * 1024 * 1024;
const SAMPLE_FUNCTION = '{"name": "get_weather", "description": "The weather of a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}}';

export function showPlayground(body, app) {
  const log = h('div', { class: 'conversation', 'aria-live': 'off' });
  const prompt = h('textarea', { id: 'prompt', rows: '3', placeholder: 'Say something …', dir: 'auto' });
  const attached = h('ul', { class: 'attached', 'aria-label': 'Attached files' });
  const sendButton = h('button', { type: 'submit' }, 'Send');
  const stopButton = h('button', { type: 'button', class: 'stop', hidden: true, onclick: () => running?.abort() }, 'Stop');
  const note = h('p', { class: 'problem', role: 'alert', hidden: true });
  const model = h('select', { id: 'model' }, h('option', { value: '' }, 'loading …'));
  const effort = h('select', { id: 'effort' }, h('option', { value: '' }, 'default'));
  const instructions = h('textarea', { id: 'instructions', rows: '2', dir: 'auto', placeholder: 'none' });
  const functions = h('textarea', { id: 'functions', rows: '4', class: 'mono', spellcheck: 'false', placeholder: SAMPLE_FUNCTION });
  const schema = h('textarea', { id: 'schema', rows: '4', class: 'mono', spellcheck: 'false', placeholder: '{"type": "object", "properties": …}' });
  const search = h('input', { id: 'search', type: 'checkbox' });
  const picker = h('input', { id: 'picker', type: 'file', multiple: true, class: 'unseen', tabindex: '-1', 'aria-hidden': 'true', onchange: () => attach(picker.files) });
  const code = h('details', { class: 'snippets' }, h('summary', {}, 'This request as curl, Python, node on every API'));
  let items = []; // The conversation, as input items.
  let files = []; // What goes with the next message.
  let running = null;
  let last = null; // The body that was sent last.

  const form = h('form', { class: 'composer', onsubmit: submit, ondragover: over, ondragleave: () => form.classList.remove('over'), ondrop: drop },
    h('label', { for: 'prompt', class: 'unseen' }, 'Message'), prompt, attached, note,
    h('div', { class: 'row' }, sendButton, stopButton,
      h('button', { type: 'button', class: 'quiet', onclick: () => picker.click() }, 'Attach'), picker,
      h('button', { type: 'button', class: 'quiet', onclick: clear }, 'New conversation'),
      h('span', { class: 'hint' }, 'Ctrl+Enter sends; drop or paste images and files.')));
  fill(body,
    h('div', { class: 'choices' },
      field('model', 'Model', model), field('effort', 'Effort', effort),
      h('details', { class: 'more' }, h('summary', {}, 'Instructions, functions, schema, search'),
        field('instructions', 'Instructions', instructions),
        field('functions', 'Functions (JSON)', functions),
        field('schema', 'JSON Schema of the answer', schema),
        h('label', { class: 'check' }, search, ' Web search, which the provider runs'))),
    log, form, code);
  showEmpty();
  prompt.addEventListener('keydown', (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit(event); });
  prompt.addEventListener('paste', (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach(event.clipboardData.files); } });
  code.addEventListener('toggle', showCode);
  model.addEventListener('change', showEfforts);
  app.signal.addEventListener('abort', () => running?.abort());
  let models = [];
  loadModels();

  async function loadModels() {
    try {
      models = (await send('GET', '/models')).data;
      fill(model, models.map(({ id }) => h('option', { value: id }, id)));
      model.value = models.some(({ id }) => id === 'codex-5') ? 'codex-5' : models[0]?.id ?? '';
      showEfforts();
    } catch (error) {
      fill(model, h('option', { value: '' }, 'none'));
      complain(`The models cannot be listed. ${error.message}`);
      app.listeners.addEventListener('gauges', ({ detail }) => { if (detail.ready && !models.length) { complain(''); loadModels(); } });
    }
  }

  function showEfforts() {
    const chosen = models.find(({ id }) => id === model.value);
    fill(effort, h('option', { value: '' }, chosen?.default_reasoning_effort ? `default (${chosen.default_reasoning_effort})` : 'default'),
      (chosen?.reasoning_efforts ?? []).map((each) => h('option', { value: each }, each)));
  }

  function showEmpty() {
    fill(log, h('p', { class: 'empty' }, 'Nothing said yet. ',
      h('button', { type: 'button', class: 'quiet', onclick: () => { prompt.value = 'Hello! What did you receive?'; submit(); } }, 'Say hello')));
  }

  function clear() {
    running?.abort();
    items = [];
    last = null;
    showEmpty();
    complain('');
    showCode();
  }

  function complain(text) {
    note.hidden = !text;
    note.textContent = text;
  }

  function over(event) {
    event.preventDefault();
    form.classList.add('over');
  }

  function drop(event) {
    event.preventDefault();
    form.classList.remove('over');
    attach(event.dataTransfer.files);
  }

  async function attach(given) {
    for (const file of given) {
      if (files.reduce((sum, { size }) => sum + size, file.size) > MOST_ATTACHED_BYTES) {
        complain(`${file.name} is too large: at most 8 MB go with a message.`);
        continue;
      }
      const url = await dataUrl(file);
      files.push({ name: file.name, size: file.size, part: file.type.startsWith('image/')
        ? { type: 'input_image', image_url: url } : { type: 'input_file', filename: file.name, file_data: url } });
    }
    picker.value = '';
    showAttached();
  }

  function showAttached() {
    fill(attached, files.map((file) => h('li', {},
      file.part.type === 'input_image' && h('img', { src: file.part.image_url, alt: '', width: '32', height: '32' }),
      h('span', { class: 'name', dir: 'auto' }, file.name),
      h('button', { type: 'button', class: 'quiet', 'aria-label': `Remove ${file.name}`, onclick: () => { files = files.filter((each) => each !== file); showAttached(); } }, '✕'))));
  }

  /** Return what the form asks for; throws an error that says which field is wrong. */
  function chosen() {
    return {
      model: model.value, effort: effort.value, instructions: instructions.value.trim(), search: search.checked,
      functions: parsed(functions, 'The functions', functionsIn), schema: parsed(schema, 'The schema', (text) => (text.trim() ? JSON.parse(text) : null)),
    };
  }

  async function submit(event) {
    event?.preventDefault();
    const text = prompt.value.trim();
    if (running !== null || (!text && !files.length)) return;
    const content = [...(text ? [{ type: 'input_text', text }] : []), ...files.map(({ part }) => part)];
    const message = { role: 'user', content };
    if (await run([message], userTurn(text, files))) {
      prompt.value = '';
      files = [];
      showAttached();
    }
  }

  /** Send the conversation with new items; tell whether the request could be built. */
  async function run(added, shown) {
    complain('');
    let request;
    try {
      request = bodyOf(chosen(), [...items, ...added]);
    } catch (error) {
      complain(error.message);
      return false;
    }
    if (!items.length) fill(log);
    if (shown) log.append(shown);
    items = request.input;
    last = request;
    showCode();
    const answer = new Answer((outputs) => run(outputs, null));
    log.append(answer.element);
    log.scrollTop = log.scrollHeight;
    running = new AbortController();
    sendButton.hidden = true;
    stopButton.hidden = false;
    const stuck = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    answer.follow(request, running.signal, stuck, () => { log.scrollTop = log.scrollHeight; }).then((output) => {
      items = [...items, ...output];
    }).finally(() => {
      running = null;
      sendButton.hidden = false;
      stopButton.hidden = true;
      showCode();
    });
    return true;
  }

  function showCode() {
    if (!code.open) return;
    let request = last;
    try {
      request ??= bodyOf(chosen(), [{ role: 'user', content: prompt.value || 'Hello!' }]);
    } catch (error) {
      complain(error.message);
      return;
    }
    const apis = snippets(app.state.others);
    const program = (write) => () => {
      const text = write(request);
      return h('div', { class: 'snippet' }, copyButton(() => text), h('pre', { tabindex: '0' }, h('code', {}, shortened(text))));
    };
    const panels = apis.map(({ name, note, languages }) => [name, () => [tabs('Language', languages.map(([language, write]) => [language, program(write)])), note && h('p', { class: 'hint' }, note)]]);
    fill(code, code.querySelector('summary'), tabs('API', panels));
  }
}

function field(id, label, control) {
  return h('div', { class: 'field' }, h('label', { for: id }, label), control);
}

function parsed(area, name, parse) {
  try {
    return parse(area.value);
  } catch (error) {
    throw new Error(`${name}: this is not JSON. ${error.message}`);
  }
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Leave out the middle of what nobody reads: the data of pictures. Copying takes the whole. */
const shortened = (text) => text.replace(/([A-Za-z0-9+/=]{80})[A-Za-z0-9+/=]{400,}/g, '$1…');

function userTurn(text, files) {
  return h('div', { class: 'turn user' }, h('div', { class: 'role' }, 'You'),
    text && h('div', { class: 'text', dir: 'auto' }, text),
    files.map(({ name, part }) => (part.type === 'input_image'
      ? h('img', { class: 'picture', src: part.image_url, alt: name || 'attached image' }) : h('div', { class: 'file', dir: 'auto' }, name))));
}

/** One answer of the model while it streams, and after it. */
class Answer {
  #send;
  #reasoning = null;
  #text = null;
  #cards = new Map();

  constructor(sendOutputs) {
    this.#send = sendOutputs;
    this.body = h('div', { class: 'answer' });
    this.foot = h('p', { class: 'foot' }, 'waiting for the first token …');
    this.element = h('div', { class: 'turn model', 'aria-busy': 'true' }, h('div', { class: 'role' }, 'Model'), this.body, this.foot);
  }

  /** Stream the answer to a request; return the items that the next request repeats. */
  async follow(request, signal, stuck, scroll) {
    const began = performance.now();
    let first = null;
    let served = null;
    let id = null;
    let output = [];
    try {
      const response = await fetch('/v1/responses', {
        method: 'POST', headers: { 'content-type': 'application/json', ...ownHeaders() }, body: JSON.stringify(request), signal,
      });
      served = response.headers.get('x-turnbridge-thread');
      id = response.headers.get('x-request-id');
      if (!response.ok) await read(response);
      for await (const { data } of events(response.body)) {
        const follows = stuck();
        if (first === null && data.type.endsWith('.delta')) first = performance.now() - began;
        this.#show(data);
        if (follows) scroll();
        if (['response.completed', 'response.incomplete', 'response.failed'].includes(data.type)) {
          output = data.response.output.filter(({ type }) => type === 'message' || type === 'function_call').map(asInput);
          this.#end(data.response, { first, total: performance.now() - began, served, id });
        }
      }
    } catch (error) {
      if (error.name === 'AbortError') fill(this.foot, 'Stopped.');
      else fill(this.foot, problem(error));
      output = [];
    }
    this.element.setAttribute('aria-busy', 'false');
    announce(this.#text?.textContent.slice(0, 200) || this.foot.textContent);
    return output;
  }

  #show(event) {
    switch (event.type) {
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        if (this.#reasoning === null) {
          this.#reasoning = h('div', { class: 'text', dir: 'auto' });
          this.body.append(h('details', { class: 'reasoning' }, h('summary', {}, 'Reasoning'), this.#reasoning));
        }
        this.#reasoning.append(event.delta);
        break;
      case 'response.output_text.delta':
      case 'response.refusal.delta':
        if (this.#text === null) {
          this.#text = h('div', { class: 'text', dir: 'auto' });
          this.body.append(this.#text);
        }
        this.#text.append(event.delta);
        break;
      case 'response.output_item.added':
        if (event.item.type === 'function_call') this.#card(event.item);
        if (event.item.type === 'message') this.#text = null;
        if (event.item.type === 'web_search_call') this.body.append(h('div', { class: 'call' }, 'Searches the web …'));
        break;
      case 'response.function_call_arguments.delta':
        this.#cards.get(event.item_id)?.shown.append(event.delta);
        break;
      case 'response.output_item.done':
        if (event.item.type === 'function_call') this.#card(event.item).shown.textContent = pretty(event.item.arguments);
        break;
      case 'error':
        fill(this.foot, problem(new Error(event.message ?? event.error?.message ?? 'The stream ended with an error.')));
        break;
      default:
    }
  }

  #card(item) {
    if (!this.#cards.has(item.id)) {
      const shown = h('code', {});
      const result = h('textarea', { id: `result-${item.call_id}`, rows: '2', class: 'mono', placeholder: 'the result of this call' });
      const element = h('div', { class: 'call' }, h('div', { class: 'call-name', dir: 'auto' }, item.name), h('pre', { tabindex: '0' }, shown),
        h('label', { for: result.id }, `Result of ${item.name}`), result);
      this.#cards.set(item.id, { item, shown, result, element });
      this.body.append(element);
    }
    return this.#cards.get(item.id);
  }

  #end(response, { first, total, served, id }) {
    if (response.error) {
      fill(this.foot, problem(new Error(response.error.message)));
      return;
    }
    const { usage } = response;
    const tokens = usage && { input: usage.input_tokens, cached: usage.input_tokens_details?.cached_tokens ?? 0 };
    fill(this.foot,
      fact('first token', duration(first)), fact('total', duration(total)),
      usage && fact('input', `${count(tokens.input)} tokens, ${cachedShare(tokens)} % cached`),
      usage && fact('output', `${count(usage.output_tokens)} tokens`),
      served && h('span', { title: SERVED[served] ?? served }, 'thread: ', h('b', {}, served)),
      response.status === 'incomplete' && fact('incomplete', response.incomplete_details?.reason ?? ''),
      id && h('span', {}, id));
    if (this.#cards.size) this.#askForResults();
  }

  #askForResults() {
    const button = h('button', { type: 'button', onclick: async () => {
      const outputs = [...this.#cards.values()].map(({ item, result }) => ({ type: 'function_call_output', call_id: item.call_id, output: result.value }));
      if (await this.#send(outputs)) {
        button.remove();
        for (const { result } of this.#cards.values()) result.readOnly = true;
      }
    } }, this.#cards.size === 1 ? 'Send the result' : 'Send the results');
    this.body.append(button);
  }
}

const fact = (name, value) => h('span', {}, `${name}: `, h('b', {}, value));

/** Return an item of an answer as the next request repeats it. */
function asInput(item) {
  if (item.type === 'function_call') {
    return { type: 'function_call', call_id: item.call_id, name: item.name, arguments: item.arguments };
  }
  const text = item.content.map((part) => part.text ?? part.refusal ?? '').join('');
  return { role: 'assistant', content: [{ type: 'output_text', text }] };
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
