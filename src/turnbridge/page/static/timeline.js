// One request: what it waited for as bars, every message on both wires, and what became of it on its way to the model.

import { send } from './api.js';
import { table } from './about.js';
import { fill, h, problem } from './dom.js';
import { accounts, difference } from './seen.js';
import { cachedShare, clock, count, duration } from './words.js';

/** What a request waits for, one after another. */
export const WAITS = [
  ['read', 'read and checked'], ['queue', 'queue'], ['thread', 'thread of Codex'], ['provider', 'provider, to the first token'], ['stream', 'stream'],
];

export function showRequest(entry, app) {
  const place = h('div', {});
  const dialog = h('dialog', { 'aria-label': `Request ${entry.id}`, onclose: () => dialog.remove() },
    h('div', { class: 'row' }, h('h3', {}, 'Request ', h('code', {}, entry.id)), h('button', { type: 'button', class: 'quiet', onclick: () => dialog.close() }, 'Close')),
    h('p', { class: 'foot' }, facts(entry).map(([name, value]) => h('span', { dir: 'auto' }, `${name}: `, h('b', {}, value)))),
    waits(entry), place);
  document.body.append(dialog);
  dialog.showModal();
  if (app.owner) showTrace(place, entry, app);
}

function facts({ time, route, client, page, model, served, outcome, error, tokens }) {
  return [
    ['at', clock(time)], ['route', route], ['client', page ? 'this page' : client ?? 'no key'], model && ['model', model], served && ['thread', served],
    tokens && ['tokens', `${count(tokens.input)} → ${count(tokens.output)}, ${cachedShare(tokens)} % cached`], ['outcome', outcome === 'ok' ? 'ok' : error ?? outcome],
  ].filter(Boolean);
}

/** Draw what the request waited for as one bar in pieces. */
function waits({ waits: taken, total_ms: total }) {
  const pieces = WAITS.filter(([name]) => taken[name] !== undefined).map(([name, words]) => ({ name, words, ms: Math.max(taken[name], 0) }));
  const words = pieces.map((piece) => `${piece.words} ${duration(piece.ms)}`).join(', ');
  const bar = h('div', { class: 'waits', role: 'img', 'aria-label': `${duration(total)} in all: ${words}` }, pieces.filter(({ ms }) => ms > 0).map(({ name, ms }) => {
    const part = h('span', { class: `wait ${name}` });
    part.style.flexGrow = String(ms);
    return part;
  }));
  return h('figure', {}, bar, h('figcaption', { class: 'hint legend' },
    pieces.map((piece) => h('span', {}, h('span', { class: `swatch ${piece.name}`, 'aria-hidden': 'true' }), `${piece.words} `, h('b', {}, duration(piece.ms)))), h('span', {}, 'in all ', h('b', {}, duration(total)))));
}

async function showTrace(place, entry, app) {
  if (!app.state.traced) {
    fill(place, h('p', { class: 'hint' }, 'The wire trace is off. Restart the gateway with ', h('code', {}, 'PROXY_LOG_PROTO=true'), ': then this shows every message on both wires, and compares what the client sent, what Codex was told and what the model saw.'));
    return;
  }
  fill(place, h('p', { class: 'hint' }, 'Reading the trace …'));
  try {
    const seen = await send('GET', `/timeline?id=${encodeURIComponent(entry.id)}`);
    fill(place, compared(seen, entry), h('h4', {}, 'Both wires'), wires(seen));
  } catch (error) {
    fill(place, problem(error));
  }
}

function wires({ rows, more_rows: more }) {
  const whole = Math.max(1, ...rows.map(({ at_ms: at, took_ms: took }) => at + took));
  return h('div', {}, table('Messages on both wires', ['At', 'Wire', 'Message', 'When', 'Content'], rows.map((row) => {
    const mark = h('span', { class: `mark ${row.wire}` });
    mark.style.marginInlineStart = `${(row.at_ms / whole) * 100}%`;
    mark.style.width = `${(row.took_ms / whole) * 100}%`;
    const name = row.wire === 'client' ? (row.inbound ? 'client ▶' : 'client ◀') : (row.inbound ? '◀ codex' : '▶ codex');
    return [duration(row.at_ms), h('span', { class: 'wire' }, name), h('span', { class: row.failed ? 'problem' : '' }, row.label),
      h('span', { class: 'track', 'aria-hidden': 'true' }, mark), h('span', { class: 'mono content', dir: 'auto' }, row.count > 1 ? `${row.count} deltas, ${duration(row.took_ms)}: ${row.text}` : row.text)];
  })), more > 0 && h('p', { class: 'hint' }, `${more} more are in the trace: turnbridge trace shows them.`));
}

/** Show the three accounts side by side; the second and the third as what differs from the one before. */
function compared(seen, entry) {
  const { client, comparable, codex, told, model, started } = accounts(seen);
  if (codex.length === 0 && model.length === 0) return h('p', { class: 'hint' }, 'This request told Codex nothing.');
  const kept = ['warm', 'parked'].includes(entry.served);
  const ahead = !started && (kept ? `The thread was ${entry.served}: Codex had the rest already.` : 'The thread was started ahead: Codex had instructions and tools already.');
  const partly = 'Only a part of it is in the trace.';
  return h('div', { class: 'panes' },
    pane('The client sent', client.map((line) => [' ', line]), '', seen.cut.client && partly),
    pane('Codex was told', difference(comparable, codex), kept ? 'that Codex had already' : 'not passed on', seen.cut.codex ? partly : ahead),
    pane('The model saw', difference(told, model), 'that it did not see', seen.cut.model ? partly : 'The items that Codex reports to have put before the model. It does not repeat instructions and tools.'));
}

const lines = (number) => (number === 1 ? '1 line' : `${count(number)} lines`);

/** Show lines with their marks; `gone` says what it means that one is missing. */
function pane(title, found, gone, note) {
  const marked = (mark) => found.filter(([each]) => each === mark).length;
  const [added, missing] = [marked('+'), marked('-')];
  const words = [added && `${lines(added)} added`, missing && `${lines(missing)} ${gone}`, !added && !missing && `${lines(found.length)}${gone && ', no difference'}`];
  return h('section', { class: 'pane', 'aria-label': title }, h('h4', {}, title), h('p', { class: 'hint' }, words.filter(Boolean).join(', ')),
    h('pre', { tabindex: '0', 'aria-label': title }, found.map(([mark, line]) => h({ '+': 'ins', '-': 'del' }[mark] ?? 'span', {}, `${mark} ${line}\n`))), note && h('p', { class: 'hint' }, note));
}
