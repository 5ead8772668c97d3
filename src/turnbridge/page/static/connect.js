// How each client is connected, with the address of this page and a model that exists; and its first request arriving.

import { send } from './api.js';
import { announce, copyButton, fill, h, problem } from './dom.js';
import { clock } from './words.js';

/** How known clients call themselves in `User-Agent`. */
const AGENTS = {
  'claude-code': /claude-cli/i, codex: /codex/i, opencode: /opencode|ai-sdk/i, 'obsidian-copilot': /obsidian/i, cursor: /cursor/i,
  zed: /zed/i, aider: /aider|litellm/i, n8n: /n8n/i, langchain: /openai\/python|langchain/i, 'openai-sdk': /openai\/(python|js)/i,
};
/** The routes of each API, for clients that do not say who they are. */
const ROUTES = { chat: 'chat/completions', responses: 'responses', messages: 'messages' };

export function showConnect(body, app) {
  const tiles = h('div', { class: 'tiles', role: 'group', 'aria-label': 'Clients' });
  const chosen = h('div', { class: 'chosen' }, h('p', { class: 'hint' }, 'Choose a client to see its settings.'));
  const waiting = { client: null, place: null };
  fill(body, tiles, chosen);
  load();

  async function load() {
    try {
      const { clients, hidden_key: hidden } = await send('GET', `/connect?origin=${encodeURIComponent(location.origin)}`);
      fill(tiles, clients.map((client) => {
        const tile = h('button', { type: 'button', class: 'tile', 'aria-pressed': 'false', onclick: () => choose(client, tile, hidden) }, client.title);
        return tile;
      }));
    } catch (error) {
      if (error.status !== 401) fill(tiles, problem(error, load));
    }
  }

  function choose(client, tile, hidden) {
    tiles.querySelectorAll('.tile').forEach((each) => each.setAttribute('aria-pressed', String(each === tile)));
    waiting.client = client;
    waiting.place = h('p', { class: 'waiting', role: 'status' }, h('span', { class: 'dot', 'aria-hidden': 'true' }), `Waiting for the first request of ${client.title} …`);
    const withKey = async () => client.text.replaceAll(hidden, app.owner ? (await send('GET', '/key')).key : hidden);
    fill(chosen,
      h('h3', {}, client.title), h('p', { class: 'hint' }, coded(client.where)),
      h('div', { class: 'snippet' }, copyButton(withKey, app.owner && client.text.includes(hidden) ? 'Copy with the key' : 'Copy'), h('pre', { tabindex: '0', 'aria-label': `Settings of ${client.title}` }, h('code', {}, client.text))),
      client.text.includes(hidden) && h('p', { class: 'hint' }, app.owner ? `${hidden} stands for your key, which is copied in its place.` : `${hidden} stands for your key.`),
      client.command && h('p', {}, 'A command writes them for you: ', h('code', {}, client.command)),
      client.then && h('p', {}, coded(client.then)),
      client.notes.length > 0 && h('ul', {}, client.notes.map((note) => h('li', {}, coded(note)))),
      waiting.place);
  }

  app.listeners.addEventListener('request', ({ detail: entry }) => {
    if (waiting.client === null || entry.page || !isFrom(entry, waiting.client)) return;
    const text = entry.outcome === 'ok' ? `${waiting.client.title} is connected: its request arrived at ${clock(entry.time)}.`
      : `A request of ${waiting.client.title} arrived at ${clock(entry.time)}, and ended with ${entry.error ?? entry.outcome}.`;
    fill(waiting.place, h('span', { class: entry.outcome === 'ok' ? 'dot good' : 'dot bad', 'aria-hidden': 'true' }), text);
    announce(text);
  });
}

function isFrom(entry, client) {
  const agent = AGENTS[client.name];
  if (agent) return agent.test(entry.agent);
  // Of the rest, whoever uses its API and is not known by another name.
  return entry.route.endsWith(ROUTES[client.api]) && !Object.values(AGENTS).some((known) => known.test(entry.agent));
}

/** Return a text with what stands between backquotes as code. */
const coded = (text) => text.split('`').map((part, index) => (index % 2 ? h('code', {}, part) : part));
