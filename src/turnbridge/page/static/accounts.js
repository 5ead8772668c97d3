// The Codex accounts, for the owner: who is logged in to each, its plan, login and logout.

import { send } from './api.js';
import { announce, fill, h, problem } from './dom.js';
import { moment, span } from './words.js';

// The gateway tells by events when it becomes ready; this is for a login that is under way.
const LOGIN_POLL_MS = 1500;
const DEFAULT = 'default';

/** Show a card for each account, and how to add one; return a function that takes how they all stand. */
export function showAccounts(place, changed) {
  const cards = new Map();
  const list = h('div', { class: 'accounts' });
  const name = h('input', { id: 'account-name', type: 'text', required: true, placeholder: 'work', autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false' });
  const more = h('details', {}, h('summary', {}, 'Add an account'),
    h('form', { onsubmit: add }, h('p', { class: 'hint' }, 'Another Codex login, with a plan of its own, for the keys that are made for it. Requests never go to another account than their key’s.'),
      h('label', { for: 'account-name' }, 'Name'), h('div', { class: 'row' }, name, h('button', { type: 'submit' }, 'Log in to it'))));
  fill(place, list, more);
  put(DEFAULT);

  function put(account) {
    if (!cards.has(account)) cards.set(account, card(account, changed));
    list.append(cards.get(account).element);
    return cards.get(account);
  }

  function add(event) {
    event.preventDefault();
    put(name.value.trim()).offer();
    event.target.reset();
    more.open = false;
  }

  return async (accounts) => {
    for (const [known, { element, fresh }] of cards) {
      if (accounts.some((each) => each.name === known) || fresh()) continue;
      element.remove();
      cards.delete(known);
    }
    for (const each of accounts.filter((one) => !cards.has(one.name))) put(each.name);
    // One after another: each asks a Codex of its own.
    for (const each of accounts) await cards.get(each.name)?.stands(each, cards.size > 1);
  };
}

/** Return the card of an account. */
function card(name, changed) {
  const who = h('div', { class: 'who-is' });
  const action = h('div', { class: 'fixed' });
  const login = h('div', { class: 'login' });
  const plan = h('div', { class: 'plan' });
  const element = h('section', { class: 'account', 'aria-label': `Account ${name}` }, h('div', { class: 'account-head' }, who, action), login, plan);
  let known = { name, limits: [] };
  let account = null;
  let asked = null;
  let offered = false;
  let title = name === DEFAULT ? 'Account' : name;
  show();

  function show() {
    const usable = account?.usable;
    fill(who, h('span', { class: usable ? 'dot good' : usable === false || account?.limits_problem ? 'dot bad' : 'dot', 'aria-hidden': 'true' }),
      h('div', {}, h('h3', { dir: 'auto' }, title), h('p', { dir: 'auto' }, account === null && offered ? 'a new account' : words(account)),
        usable && !known.ready && h('p', { class: 'hint', dir: 'auto' }, / is not logged in:/.test(known.reason) ? 'Codex starts with this login …' : known.reason)));
    fill(action, account?.kind && h('button', { type: 'button', class: 'quiet', 'aria-label': `Log out of ${name}`, onclick: leave }, 'Log out'));
    if (usable) {
      offered = false;
      fill(login);
    } else if (usable === false) offer();
    showPlan(plan, account && { ...account, limits: known.limits });
    plan.hidden = usable === false || (account === null && offered);
  }

  function offer() {
    offered = true;
    if (login.firstChild) return;
    showLogin(login, name, account?.login, refresh);
    show();
  }

  async function refresh() {
    try {
      asked = send('GET', `/account?account=${encodeURIComponent(name)}`);
      account = await asked;
      known = account;
      show();
    } catch (error) {
      if (error.status !== 401 && !offered) fill(plan, problem(error, refresh));
    } finally {
      asked = null;
    }
  }

  async function leave() {
    if (!window.confirm(`Log out of ${name === DEFAULT ? 'the account' : name}? Requests of its keys fail until somebody logs in again. Every Codex that uses the same home is logged out, too.`)) return;
    fill(action, h('span', { class: 'hint' }, 'Logging out …'));
    try {
      await send('POST', '/logout', { account: name });
      announce(`Logged out of ${name}.`);
    } catch (error) {
      fill(login, problem(error));
    }
    await refresh();
    changed();
  }

  return {
    element,
    offer,
    /** Tell whether it is only on this page until somebody has logged in. */
    fresh: () => account === null && offered,
    /** Take how the account stands: each turn tells of its plan. Codex is asked if something else is different. */
    async stands(now, several) {
      if (name === DEFAULT) title = several ? DEFAULT : 'Account';
      // What is being asked may be about a login that is gone by now.
      await asked?.catch(() => {});
      const same = account !== null && now.reason === known.reason && now.login_at === known.login_at;
      known = now;
      show();
      if (!same) await refresh();
    },
  };
}

function words(account) {
  if (account === null) return 'asking Codex …';
  if (account.problem) return account.problem;
  if (account.kind === 'chatgpt') return [account.email ?? 'unnamed', `ChatGPT ${titled(account.plan ?? '')}`].join(', ');
  if (account.kind === 'apiKey') return 'OpenAI API key';
  if (account.kind) return account.kind;
  if (account.login_needed === undefined) return account.limits_problem ?? 'Codex cannot be asked.';
  return account.login_needed ? 'nobody is logged in' : `no login needed: provider ${account.provider}`;
}

const titled = (plan) => plan.replaceAll('_', ' ').replace(/\b\w/g, (letter) => letter.toUpperCase());

/** Show how to log in to an account, or the login that is `pending`; `done` is called when somebody has. */
function showLogin(place, account, pending, done) {
  const again = () => showLogin(place, account, null, done);
  const key = h('input', { id: `api-key-${account}`, type: 'password', required: true, autocomplete: 'off', placeholder: 'sk-…' });
  const start = (method, given = {}) => async () => {
    fill(place, h('p', {}, 'Starting Codex …'));
    try {
      follow(await send('POST', '/login', { method, account, ...given }));
    } catch (error) {
      fill(place, problem(error, again));
    }
  };
  if (pending?.state === 'pending') return follow(pending);
  fill(place, h('div', { class: 'row' },
    h('button', { type: 'button', onclick: start('device') }, 'Log in with a code'),
    h('button', { type: 'button', class: 'quiet', onclick: start('browser') }, 'Log in in a browser on this machine')),
  h('details', {}, h('summary', {}, 'With an OpenAI API key'),
    h('form', { onsubmit: (event) => { event.preventDefault(); start('api_key', { api_key: key.value })(); } },
      h('label', { for: key.id }, 'API key, which Codex keeps'), h('div', { class: 'row' }, key, h('button', { type: 'submit' }, 'Log in')))));

  function follow(login) {
    if (login.state === 'done') {
      fill(place, h('p', { role: 'status' }, 'Logged in. Codex restarts …'));
      return done();
    }
    if (login.state !== 'pending') return fill(place, problem(new Error(login.problem ?? 'The login was cancelled.'), again));
    fill(place,
      h('p', {}, 'Open ', h('a', { href: safe(login.url), target: '_blank', rel: 'noopener noreferrer' }, login.code ? login.url : 'the login page'),
        login.code ? ', and enter this code, which only you should use:' : ' in a browser on the machine of the gateway.'),
      login.code && h('p', { class: 'code' }, login.code),
      h('p', { class: 'hint' }, 'Waiting for the login … ', h('button', { type: 'button', class: 'quiet', onclick: cancel }, 'Cancel')));
    announce(login.code ? `Enter the code ${login.code}` : 'Waiting for the login');
    setTimeout(poll, LOGIN_POLL_MS);
    let cancelled = false;

    async function poll() {
      if (cancelled || !place.isConnected) return;
      const now = await send('GET', `/login?account=${encodeURIComponent(account)}`).catch(() => login);
      if (cancelled) return;
      if (now.state === 'pending') setTimeout(poll, LOGIN_POLL_MS);
      else follow(now);
    }

    async function cancel() {
      cancelled = true;
      await send('DELETE', `/login?account=${encodeURIComponent(account)}`).catch(() => {});
      again();
    }
  }
}

/** Return a URL that may be opened: of the web, and nothing else. */
const safe = (url) => (/^https?:\/\//.test(url ?? '') ? url : null);

/** Show each window of the plan as a bar, and where the present rate leads. */
export function showPlan(place, account) {
  const windows = account?.limits ?? [];
  if (windows.length) {
    return fill(place, windows.map(bar));
  }
  const reason = account === null ? 'Reading the plan …'
    : account.demo ? 'The demo has no plan. With a ChatGPT login, its windows are shown here.'
      : account.limits_problem ?? (account.kind === 'apiKey' ? 'An API key is billed by use, and has no windows.' : 'This login has no plan windows.');
  return fill(place, ['5 hours', 'Week'].map((name) => h('div', { class: 'window greyed' },
    h('div', { class: 'window-head' }, h('span', {}, name), h('span', {}, '–')), h('div', { class: 'bar', 'aria-hidden': 'true' }))), h('p', { class: 'hint' }, reason));
}

function bar(window) {
  const used = Math.min(Math.max(window.used_percent, 0), 100);
  const inner = h('div', { class: used >= 90 ? 'used high' : used >= 70 ? 'used some' : 'used' });
  inner.style.width = `${used}%`;
  const limit = window.window.replace(/-?(primary|secondary)$/, '');
  const name = `${limit && `${limit}, `}${span(window.window_minutes)}`;
  return h('div', { class: 'window' },
    h('div', { class: 'window-head' }, h('span', {}, name), h('span', {}, `${window.used_percent} % used`)),
    h('div', { class: 'bar', role: 'meter', 'aria-label': name, 'aria-valuemin': '0', 'aria-valuemax': '100', 'aria-valuenow': String(used) }, inner),
    h('p', { class: 'hint' }, [window.resets_at && `Starts anew at ${moment(window.resets_at)}.`, forecast(window)].filter(Boolean).join(' ')));
}

/** Return where the present rate leads, if the window has begun long enough ago to tell. */
export function forecast({ used_percent: used, window_minutes: minutes, resets_at: resetsAt }, now = Date.now() / 1000) {
  if (!minutes || !resetsAt || !used) return '';
  const whole = minutes * 60;
  const passed = whole - (resetsAt - now);
  if (passed < whole * 0.05 || passed > whole) return '';
  if (used >= 100) return 'It is used up.';
  const endsAt = now + ((100 - used) / used) * passed;
  return endsAt < resetsAt ? `At this rate it is used up at ${moment(endsAt)}.` : `At this rate ${Math.round((used / passed) * whole)} % will be used by then.`;
}
