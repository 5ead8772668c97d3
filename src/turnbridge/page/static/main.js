// The page: opens a session, then shows the blocks that the visitor may see, from top to bottom.

import { close, hasSession, onEnded, openByCode, openByKey, send } from './api.js';
import { announce, fill, h } from './dom.js';
import { showState } from './state.js';
import { showPlayground } from './playground.js';
import { showConnect } from './connect.js';
import { showLive } from './live.js';
import { showUsage } from './usage.js';
import { showKeys } from './keys.js';
import { showDoctor, showModels, showSettings } from './about.js';

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const who = document.getElementById('who');

/** Every block: its anchor, its title, whether only the owner sees it, and what fills it. */
const BLOCKS = [
  ['state', 'State', false, showState],
  ['playground', 'Playground', false, showPlayground],
  ['connect', 'Connect', false, showConnect],
  ['live', 'Live', false, showLive],
  ['usage', 'Usage', false, showUsage],
  ['keys', 'Keys', true, showKeys],
  ['models', 'Models', true, showModels],
  ['doctor', 'Doctor', true, showDoctor],
  ['settings', 'Settings', true, showSettings],
];

let stop = new AbortController();

const givenCode = () => new URLSearchParams(location.hash.slice(1)).get('code');

async function begin() {
  const code = givenCode();
  if (code !== null) {
    // The code is worth nothing after this, and does not belong into the history.
    history.replaceState(null, '', location.pathname);
    try {
      await openByCode(code);
    } catch (error) {
      if (!hasSession()) return showDoor(error.message);
    }
  }
  if (!hasSession()) return showDoor();
  try {
    showBlocks(await send('GET', '/state'));
  } catch (error) {
    showDoor(error.message);
  }
}

function showBlocks(state) {
  stop.abort();
  stop = new AbortController();
  const app = { state, owner: state.owner, signal: stop.signal, listeners: new EventTarget() };
  const shown = BLOCKS.filter(([, , owners]) => state.owner || !owners);
  fill(nav, shown.map(([id, title]) => h('a', { href: `#${id}` }, title)));
  fill(who, h('span', { class: 'name', title: state.client }, state.owner ? 'owner' : state.client),
    h('button', { type: 'button', class: 'quiet', onclick: leave }, 'Sign out'));
  fill(main, shown.map(([id, title, , show]) => {
    const body = h('div', { class: 'body' });
    queueMicrotask(() => show(body, app));
    return h('section', { id, class: 'block', 'aria-labelledby': `${id}-title` }, h('h2', { id: `${id}-title` }, title), body);
  }));
}

async function leave() {
  await close();
  stop.abort();
  showDoor('You are signed out.');
}

/** Show where a key is entered. */
function showDoor(message) {
  stop.abort();
  const error = h('p', { class: 'problem', role: 'alert', hidden: !message }, message ?? '');
  const key = h('input', { id: 'key', type: 'password', autocomplete: 'current-password', required: true, placeholder: 'sk-turnbridge-…' });
  const form = h('form', { onsubmit: enter },
    h('label', { for: 'key' }, 'API key'), h('div', { class: 'row' }, key, h('button', { type: 'submit' }, 'Open')));
  async function enter(event) {
    event.preventDefault();
    try {
      await openByKey(key.value.trim());
      showBlocks(await send('GET', '/state'));
    } catch (refused) {
      error.hidden = false;
      // The rest says how programs send a key.
      error.textContent = refused.message.replace(/ Send the header.*/s, '');
      announce(error.textContent);
    }
  }
  fill(nav);
  fill(who);
  fill(main, h('section', { class: 'block door', 'aria-labelledby': 'door-title' },
    h('h2', { id: 'door-title' }, 'Open the page'),
    h('p', {}, 'Click the link that ', h('code', {}, 'turnbridge serve'), ' printed in its terminal: it opens this page once, without a key. Or enter a key.'),
    error, form));
  key.focus();
}

onEnded.call = () => showDoor('This session has ended: the gateway was restarted, or the key was revoked.');
// A link that is pasted where the page is open already changes the part behind # only, and loads nothing.
window.addEventListener('hashchange', () => { if (givenCode() !== null) begin(); });
begin();
