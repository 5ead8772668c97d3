// Whether turns can be run, who is logged in, a login from here, and the windows of the plan.

import { send } from './api.js';
import { announce, fill, h, problem } from './dom.js';
import { moment, span } from './words.js';

// The gateway tells by events when it becomes ready; this is for a login that is under way.
const LOGIN_POLL_MS = 1500;

export function showState(body, app) {
  const line = h('p', { class: 'state-line', role: 'status' });
  const facts = h('dl', { class: 'facts' });
  const login = h('div', { class: 'login' });
  const plan = h('div', { class: 'plan' });
  fill(body, line, facts, login, app.owner && plan);
  let state = app.state;
  let account = null;

  function show() {
    fill(line, h('span', { class: state.ready ? 'dot good' : 'dot bad', 'aria-hidden': 'true' }),
      h('span', {}, state.ready ? readyWords(state) : `Not ready. ${state.reason}`));
    const rows = [
      app.owner && ['Account', accountWords(state, account)],
      account?.plan && ['Plan', account.plan.replaceAll('_', ' ')],
      ['Codex', state.codex_version ?? 'starting'],
      ['Fidelity', state.fidelity === 'exact' ? 'exact: the model sees just what clients send' : state.fidelity],
      ['Turnbridge', state.version],
    ];
    fill(facts, rows.filter(Boolean).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
    const needed = app.owner && !state.demo && (account ? account.usable === false : !state.ready && /log(ged)? in/i.test(state.reason));
    if (!needed) fill(login);
    else if (!login.firstChild) showLogin(login, refresh);
  }

  async function refresh() {
    try {
      state = await send('GET', '/state');
      show();
      if (app.owner) {
        account = await send('GET', '/account');
        show();
        showPlan(plan, account);
      }
    } catch (error) {
      if (error.status !== 401) fill(line, problem(error, refresh));
    }
  }

  app.listeners.addEventListener('gauges', ({ detail }) => {
    if (detail.ready !== state.ready) refresh();
    // Each turn tells how the plan stands.
    if (account !== null && detail.plan?.length) showPlan(plan, { ...account, limits: detail.plan });
  });
  show();
  if (app.owner) showPlan(plan, null);
  refresh();
}

function readyWords(state) {
  return state.demo ? 'Ready. This is the demo: a scripted model behind the real Codex, no account.' : 'Ready. Turns run.';
}

function accountWords(state, account) {
  if (state.demo) return 'none: the demo needs no login';
  if (account === null) return 'asking Codex …';
  if (account.problem) return account.problem;
  if (account.kind === 'chatgpt') return `${account.email ?? 'unnamed'}, ChatGPT`;
  if (account.kind === 'apiKey') return 'OpenAI API key';
  if (account.kind) return account.kind;
  return account.login_needed === false ? `none needed: provider ${account.provider}` : 'nobody is logged in';
}

/** Show how to log in; `done` is called when somebody has. */
function showLogin(place, done) {
  const start = (method) => async () => {
    fill(place, h('p', {}, 'Starting Codex …'));
    try {
      wait(await send('POST', '/login', { method }));
    } catch (error) {
      fill(place, problem(error, () => showLogin(place, done)));
    }
  };
  fill(place, h('div', { class: 'row' },
    h('button', { type: 'button', onclick: start('device') }, 'Log in with a code'),
    h('button', { type: 'button', class: 'quiet', onclick: start('browser') }, 'Log in in a browser on this machine')));

  function wait(login) {
    if (login.state === 'failed') return fill(place, problem(new Error(login.problem), () => showLogin(place, done)));
    fill(place,
      h('p', {}, 'Open ', h('a', { href: safe(login.url), target: '_blank', rel: 'noopener noreferrer' }, login.code ? login.url : 'the login page'),
        login.code ? ', and enter this code, which only you should use:' : ' in a browser on the machine of the gateway.'),
      login.code && h('p', { class: 'code' }, login.code),
      h('p', { class: 'hint' }, 'Waiting for the login … ', h('button', { type: 'button', class: 'quiet', onclick: cancel }, 'Cancel')));
    announce(login.code ? `Enter the code ${login.code}` : 'Waiting for the login');
    poll();
  }

  async function poll() {
    const login = await send('GET', '/login').catch(() => null);
    if (login?.state === 'pending' || login === null) setTimeout(poll, LOGIN_POLL_MS);
    else if (login.state === 'done') {
      fill(place, h('p', { role: 'status' }, 'Logged in. Codex restarts …'));
      done();
    } else if (login.state === 'failed') wait(login);
  }

  async function cancel() {
    await send('DELETE', '/login').catch(() => {});
    showLogin(place, done);
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
