// The models, the doctor's checks and the effective settings.

import { send } from './api.js';
import { fill, h, problem } from './dom.js';
import { count } from './words.js';

export function showModels(body) {
  load();
  async function load() {
    try {
      const { data } = await send('GET', '/models');
      fill(body, data.length === 0 ? h('p', { class: 'empty' }, 'Codex offers no models.') : table('Models', ['Name', 'Window', 'Efforts', 'Input', 'What it is'], data.map((model) => [
        h('code', {}, model.id), model.context_window === null ? '–' : count(model.context_window),
        efforts(model), model.input_modalities.join(', '), h('span', { dir: 'auto' }, model.description || model.display_name || ''),
      ])));
    } catch (error) {
      if (error.status !== 401) fill(body, problem(error, load));
    }
  }
}

function efforts({ reasoning_efforts: all, default_reasoning_effort: usual }) {
  return all.length ? all.flatMap((each, index) => [index ? ', ' : '', each === usual ? h('b', { title: 'the default' }, each) : each]) : '–';
}

export function showDoctor(body, app) {
  const result = h('div', { 'aria-live': 'polite' });
  const button = h('button', { type: 'button', onclick: run }, 'Check now');
  fill(body, h('p', { class: 'hint' }, 'The same checks as ', h('code', {}, 'turnbridge doctor'), app.state.demo ? ': of your own login and provider, which the demo does not use.' : '. They start a Codex and ask the provider, but run no turn.'),
    h('p', {}, button), result);
  async function run() {
    button.disabled = true;
    fill(result, h('p', { class: 'hint' }, 'Checking …'));
    try {
      const { checks } = await send('POST', '/doctor', {});
      fill(result, h('ul', { class: 'findings' }, checks.map(({ check, state, text, remedy }) => h('li', {},
        h('span', { class: { ok: 'badge good', wrong: 'badge bad' }[state] ?? 'badge some' }, state), h('div', {}, h('b', {}, check), ' ', text, remedy && h('div', { class: 'hint' }, `→ ${remedy}`))))));
    } catch (error) {
      fill(result, problem(error, run));
    }
    button.disabled = false;
  }
}

export function showSettings(body) {
  const place = h('div', {});
  const all = h('input', { type: 'checkbox', onchange: show });
  let settings = [];
  fill(body, h('label', { class: 'check' }, all, ' Show those with their default, too'), place);
  load();
  async function load() {
    try {
      ({ settings } = await send('GET', '/settings'));
      show();
    } catch (error) {
      if (error.status !== 401) fill(place, problem(error, load));
    }
  }
  function show() {
    const shown = settings.filter(({ source }) => all.checked || source !== 'default');
    fill(place, shown.length === 0 ? h('p', { class: 'empty' }, 'Every setting has its default.')
      : table('Settings', ['Name', 'Value', 'From'], shown.map(({ name, value, source }) => [h('code', {}, name), h('code', {}, value), source])));
  }
}

/** Return a table that scrolls by itself where it is too wide. */
export function table(label, heads, rows) {
  return h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', {}, h('thead', {}, h('tr', {}, heads.map((head) => h('th', { scope: 'col' }, head)))),
      h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell) => h('td', {}, cell)))))));
}
