// What happens now: the gauges, and the last requests as they end, by server-sent events.

import { follow } from './api.js';
import { fill, h } from './dom.js';
import { cachedShare, clientName, clock, count, duration } from './words.js';

const MOST_ROWS = 50;
// After this, a lost connection is opened again.
const RETRY_MS = 3000;
const GAUGES = [['running', 'Running'], ['queued', 'Queued'], ['parked', 'Parked'], ['warm', 'Warm']];
const EXPLAINED = {
  running: 'turns that run now', queued: 'requests that wait for a turn',
  parked: 'turns that wait for the results of calls', warm: 'threads that are kept for a next request',
};

export function showLive(body, app) {
  const values = new Map(GAUGES.map(([name]) => [name, h('b', {}, '–')]));
  const rows = h('tbody', {});
  const empty = h('p', { class: 'empty' }, 'No requests yet. Those of the page itself are not listed, except for its turns.');
  const table = h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'The last requests', hidden: true },
    h('table', {}, h('thead', {}, h('tr', {}, ['Time', 'Client', 'Route', 'Model', 'Thread', 'Tokens', 'First', 'Total', 'Outcome'].map((name) => h('th', { scope: 'col' }, name)))), rows));
  const lost = h('p', { class: 'problem', role: 'status', hidden: true }, 'The connection to the gateway is lost. Trying again …');
  fill(body, app.owner && h('div', { class: 'gauges' }, GAUGES.map(([name, title]) => h('div', { class: 'gauge', title: EXPLAINED[name] }, values.get(name), h('span', {}, title)))), lost, empty, table);

  function add(entry) {
    rows.prepend(row(entry, app));
    while (rows.children.length > MOST_ROWS) rows.lastChild.remove();
    empty.hidden = true;
    table.hidden = false;
  }

  const handlers = {
    requests: (entries) => { fill(rows); entries.forEach(add); },
    request: (entry) => {
      add(entry);
      app.listeners.dispatchEvent(new CustomEvent('request', { detail: entry }));
    },
    gauges: (gauges) => {
      values.forEach((value, name) => { value.textContent = count(gauges[name]); });
      app.listeners.dispatchEvent(new CustomEvent('gauges', { detail: gauges }));
    },
  };

  async function watch() {
    while (!app.signal.aborted) {
      try {
        const stream = await follow('/live', app.signal);
        lost.hidden = true;
        for await (const { name, data } of stream) handlers[name]?.(data);
      } catch (error) {
        if (app.signal.aborted || error.status === 401) return;
      }
      if (app.signal.aborted) return;
      lost.hidden = false;
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
    }
  }
  watch();
}

/** Show one request; what draws it is loaded when it is wanted. */
const open = async (entry, app) => (await import('./timeline.js')).showRequest(entry, app);

function row(entry, app) {
  const { tokens } = entry;
  const cell = (...children) => h('td', {}, ...children);
  const good = entry.outcome === 'ok';
  return h('tr', { 'data-request': entry.id },
    cell(h('button', { type: 'button', class: 'link', 'aria-label': `Timeline of the request at ${clock(entry.time)}`, onclick: () => open(entry, app) }, clock(entry.time))),
    cell(h('span', { class: 'name', dir: 'auto', title: entry.agent }, entry.page ? 'this page' : entry.client ? clientName(entry.client, app) : 'no key'), h('small', { dir: 'auto' }, entry.page ? '' : entry.agent)),
    cell(entry.route.replace(/^POST /, '')),
    cell(h('span', { class: 'name', dir: 'auto', title: entry.model }, entry.model ?? '–')),
    cell(entry.served ?? '–'),
    cell(tokens ? `${count(tokens.input)} → ${count(tokens.output)}` : '–', tokens && h('small', {}, `${cachedShare(tokens)} % cached`)),
    h('td', { class: 'number' }, duration(entry.first_output_ms)),
    h('td', { class: 'number' }, duration(entry.total_ms)),
    cell(h('span', { class: good ? 'badge good' : entry.outcome === 'client_gone' ? 'badge' : 'badge bad', title: entry.error }, good ? 'ok' : entry.error ?? entry.outcome)));
}
