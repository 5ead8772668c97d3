// The keys of clients: made (and shown once), limited, rotated, revoked. `turnbridge keys` does the same.

import { send } from './api.js';
import { table } from './about.js';
import { announce, copyButton, fill, h, problem } from './dom.js';
import { moment } from './words.js';

const FIELDS = [
  ['name', 'Name', 'alice'], ['models', 'Models', 'all'], ['rate', 'Rate', '60/minute;1000/day'],
  ['turns', 'Turns at once', 'no limit'], ['tokens', 'Tokens', '2M/day'], ['expires', 'Expires', '30d, or never'],
];

export function showKeys(body, app) {
  const made = h('div', { role: 'status' });
  const list = h('div', {});
  const inputs = Object.fromEntries(FIELDS.map(([name, , example]) => [name, h('input', { id: `key-${name}`, type: 'text', placeholder: example, required: name === 'name', autocomplete: 'off' })]));
  const account = h('select', { id: 'key-account' });
  const whose = h('div', { hidden: true }, h('label', { for: 'key-account' }, 'Codex account'), account);
  const admin = h('input', { type: 'checkbox' });
  const note = h('p', { class: 'problem', role: 'alert', hidden: true });
  const button = h('button', { type: 'submit' }, 'Create a key');
  fill(body, made, list, h('details', { ontoggle: loadAccounts }, h('summary', {}, 'New key'),
    h('form', { onsubmit: create }, h('div', { class: 'grid' }, FIELDS.map(([name, label]) => h('div', {}, h('label', { for: `key-${name}` }, label), inputs[name])), whose),
      h('label', { class: 'check' }, admin, ' Admin: it sees the metrics and usage of all keys, and all of this page'), note, h('p', {}, button))));
  load();

  /** Offer the accounts, if there are several. */
  async function loadAccounts() {
    if (app.state.demo) return;
    const { accounts } = await send('GET', '/accounts').catch(() => ({ accounts: [] }));
    fill(account, accounts.map(({ name }) => h('option', { value: name }, name)));
    whose.hidden = accounts.length < 2;
  }

  async function load() {
    try {
      const { keys } = await send('GET', '/keys');
      fill(list, keys.length === 0 ? h('p', { class: 'empty' }, 'There are no keys yet besides the gateway’s own.')
        : table('Keys', ['Name', 'Key', 'State', 'Limits', 'Created', ''], keys.map(row)));
    } catch (error) {
      if (error.status !== 401) fill(list, problem(error, load));
    }
  }

  function row(key) {
    const active = key.state === 'active';
    return [h('b', { dir: 'auto' }, key.name), h('code', { class: 'number' }, `…${key.hint}`), h('span', { class: active ? 'badge good' : 'badge bad' }, key.state), limits(key), moment(key.created_at),
      h('div', { class: 'row' },
        act('Edit', `Edit the limits of ${key.name}`, () => edit(key)),
        act('Rotate', `Rotate the key ${key.name}`, () => change('/keys/rotate', { name: key.name }, `Replace the key of ${key.name}? The old one stops at once.`)),
        active && act('Revoke', `Revoke the key ${key.name}`, () => change('/keys/revoke', { name: key.name }, `Revoke the key of ${key.name}? What runs for it ends.`)))];
  }

  const act = (label, name, onclick) => h('button', { type: 'button', class: 'quiet', 'aria-label': name, onclick }, label);

  async function create(event) {
    event.preventDefault();
    const given = Object.fromEntries(FIELDS.map(([name]) => [name, inputs[name].value.trim()]).filter(([, value]) => value));
    button.disabled = true;
    note.hidden = true;
    try {
      show(await send('POST', '/keys', { ...given, ...(whose.hidden ? {} : { account: account.value }), admin: admin.checked }));
      event.target.reset();
      await load();
    } catch (error) {
      note.hidden = false;
      note.textContent = error.message;
    }
    button.disabled = false;
  }

  /** Change the limits of a key in a dialog; an empty field is no limit. */
  function edit(key) {
    const now = { models: (key.models ?? []).join(','), rate: key.rate ?? '', turns: String(key.turns ?? ''), tokens: tokensOf(key), expires: key.expires_at ? new Date(key.expires_at * 1000).toISOString().slice(0, 10) : '' };
    const fields = FIELDS.filter(([name]) => name in now).map(([name, label, example]) => [name, label, h('input', { id: `edit-${name}`, type: 'text', value: now[name], placeholder: example, autocomplete: 'off' })]);
    const isAdmin = h('input', { type: 'checkbox', checked: key.admin });
    const wrong = h('p', { class: 'problem', role: 'alert', hidden: true });
    const save = h('button', { type: 'submit' }, 'Save');
    const dialog = h('dialog', { class: 'narrow', 'aria-label': `Limits of ${key.name}`, onclose: () => dialog.remove() },
      h('form', { onsubmit: submit }, h('h3', {}, 'Limits of ', h('b', { dir: 'auto' }, key.name)), h('div', { class: 'grid' }, fields.map(([name, label, input]) => h('div', {}, h('label', { for: `edit-${name}` }, label), input))),
        h('label', { class: 'check' }, isAdmin, ' Admin'), h('p', { class: 'hint' }, 'An empty field is no limit. A change is live within a second.'), wrong,
        h('div', { class: 'row' }, save, h('button', { type: 'button', class: 'quiet', onclick: () => dialog.close() }, 'Cancel'))));
    document.body.append(dialog);
    dialog.showModal();
    async function submit(event) {
      event.preventDefault();
      save.disabled = true;
      const changed = fields.map(([name, , input]) => [name, input.value.trim()]).filter(([name, value]) => value !== now[name]).map(([name, value]) => [name, value || 'none']);
      try {
        await send('POST', '/keys/limits', { name: key.name, ...Object.fromEntries(changed), ...(isAdmin.checked === key.admin ? {} : { admin: isAdmin.checked }) });
        dialog.close();
        announce(`The limits of ${key.name} are changed.`);
        await load();
      } catch (error) {
        wrong.hidden = false;
        wrong.textContent = error.message;
        save.disabled = false;
      }
    }
  }

  async function change(path, given, question) {
    if (!window.confirm(question)) return;
    try {
      show(await send('POST', path, given));
      await load();
    } catch (error) {
      fill(made, problem(error));
    }
  }

  function show({ key, name }) {
    if (!key) return fill(made);
    fill(made, h('div', { class: 'call' }, h('p', {}, 'The key of ', h('b', { dir: 'auto' }, name), ', shown this once:'),
      h('div', { class: 'row' }, h('code', { class: 'secret' }, key), copyButton(() => key))));
    announce(`The key of ${name} is shown.`);
  }
}

const tokensOf = (key) => key.tokens.map(({ amount, window }) => `${amount}/${window}`).join(';');

function limits(key) {
  const parts = [key.admin && 'admin', key.account !== 'default' && `account ${key.account}`, key.models && `models ${key.models.join(', ')}`, key.rate, key.turns && `${key.turns} turns at once`,
    ...key.tokens.map(({ amount, window }) => `${amount.toLocaleString('en')} tokens per ${window}`), key.expires_at && `until ${moment(key.expires_at)}`];
  return parts.filter(Boolean).join('; ') || 'none';
}
