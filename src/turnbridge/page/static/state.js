// Whether turns can be run, and for the owner the accounts with their plans.

import { send } from './api.js';
import { showAccounts, showPlan } from './accounts.js';
import { fill, h, problem } from './dom.js';

export function showState(body, app) {
  const line = h('p', { class: 'state-line', role: 'status' });
  const facts = h('dl', { class: 'facts' });
  const place = h('div', {});
  fill(body, line, facts, app.owner && place);
  let state = app.state;
  const accounts = app.owner && !state.demo ? showAccounts(place, refresh) : null;
  if (app.owner && state.demo) showDemo(place);

  function show() {
    fill(line, h('span', { class: state.ready ? 'dot good' : 'dot bad', 'aria-hidden': 'true' }),
      h('span', { dir: 'auto' }, state.ready ? readyWords(state) : `Not ready. ${shortened(state.reason)}`));
    const rows = [
      ['Codex', state.codex_version ?? 'starting'],
      ['Fidelity', state.fidelity === 'exact' ? 'exact: the model sees just what clients send' : state.fidelity],
      ['Turnbridge', state.version],
    ];
    fill(facts, rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
  }

  async function refresh() {
    try {
      state = await send('GET', '/state');
      show();
      if (accounts) await accounts((await send('GET', '/accounts')).accounts);
    } catch (error) {
      if (error.status !== 401) fill(line, problem(error, refresh));
    }
  }

  app.listeners.addEventListener('gauges', ({ detail }) => {
    if (detail.ready !== state.ready) refresh();
    // Each turn tells how the plan stands, and accounts come and go.
    else accounts?.(detail.accounts);
  });
  show();
  refresh();
}

function readyWords(state) {
  return state.demo ? 'Ready. This is the demo: a scripted model behind the real Codex, no account.' : 'Ready. Turns run.';
}

/** Return a reason without the command that logs in: the buttons are below. */
const shortened = (reason) => reason.replace(/( is not logged in):.*/s, '$1.');

function showDemo(place) {
  const plan = h('div', { class: 'plan' });
  fill(place, plan);
  showPlan(plan, { demo: true, limits: [] });
}
