// What was used: tokens by day as a drawing, and by client and model as tables; latencies and errors. Guests see their own.

import { send } from './api.js';
import { table } from './about.js';
import { fill, h, problem, svg } from './dom.js';
import { clientName, count, duration, moment } from './words.js';

const DAY_S = 86_400;
const DAYS = 14;
const WIDTH = 700;
const HEIGHT = 110;
const FOOT = 22;

export function showUsage(body, app) {
  load();
  // A turn that ends changes today's figures; they are stored a few seconds later.
  let soon = null;
  app.listeners.addEventListener('request', () => { clearTimeout(soon); soon = setTimeout(load, 12_000); });
  app.signal.addEventListener('abort', () => clearTimeout(soon));

  async function load() {
    const today = Math.floor(Date.now() / 1000 / DAY_S) * DAY_S;
    try {
      const start = today - (DAYS - 1) * DAY_S;
      const [{ data }, figures] = await Promise.all([send('GET', `/usage?start_time=${start}&bucket_width=1d&limit=${DAYS}&group_by=api_key_id,model`), send('GET', '/figures')]);
      show(data, figures);
    } catch (error) {
      if (error.status !== 401) fill(body, problem(error, load));
    }
  }

  function show(days, figures) {
    const results = days.flatMap((day) => day.results);
    const used = results.some(({ num_model_requests: requests }) => requests);
    fill(body, used ? [chart(days), app.owner && sums('By client', 'Client', results, 'api_key_id', (name) => clientName(name, app)), sums('By model', 'Model', results, 'model')]
      : h('p', { class: 'empty' }, `Nothing was used in the last ${DAYS} days. Figures appear some seconds after a turn.`), latencies(figures), errors(figures));
  }
}

/** Show how long the first token and the whole answer took: the median, and what 90 and 99 of 100 stayed below. */
function latencies({ latencies: found, requests, most_requests: most, since }) {
  if (found.length === 0) return null;
  const slowest = Math.max(1, ...found.map((each) => each.total_ms?.p99 ?? 0));
  const times = (each) => [...['p50', 'p90', 'p99'].map((name) => h('span', { class: 'number' }, duration(each?.[name]))), spread(each, slowest)];
  return h('div', { class: 'sums' }, h('h3', {}, 'Latency'), table('Latency', ['Model', 'Turns', 'First token: median', '90 %', '99 %', '', 'Total: median', '90 %', '99 %', ''],
    found.map((each) => [h('span', { class: 'name', dir: 'auto' }, each.model || '(none)'), count(each.requests), ...times(each.first_output_ms), ...times(each.total_ms)])),
  h('p', { class: 'hint' }, requests < most ? `Since the gateway started, ${moment(since)}.` : `Of the last ${count(most)} requests.`));
}

/** Draw where half to 99 of 100 values lie, of as much as the slowest answer took. */
function spread(each, slowest) {
  const [from, to] = [each?.p50 ?? 0, each?.p99 ?? 0].map((value) => (value / slowest) * 100);
  const inner = h('div', { class: 'used' });
  Object.assign(inner.style, { insetInlineStart: `${from}%`, width: `max(3px, ${to - from}%)` });
  return h('div', { class: 'bar error-bar spread', 'aria-hidden': 'true' }, each && inner);
}

/** Show the errors by code, each as a bar. */
function errors({ errors: found }) {
  if (found.length === 0) return null;
  const most = Math.max(...found.map((each) => each.count));
  return h('div', { class: 'sums' }, h('h3', {}, 'Errors'), table('Errors by code', ['Code', 'Requests', ''], found.map((each) => {
    const bar = h('div', { class: 'used high' });
    bar.style.width = `${(each.count / most) * 100}%`;
    return [h('code', {}, each.code), count(each.count), h('div', { class: 'bar error-bar', 'aria-hidden': 'true' }, bar)];
  })));
}

function total(results) {
  const sum = (name) => results.reduce((all, each) => all + (each[name] ?? 0), 0);
  return { input: sum('input_tokens'), cached: sum('input_cached_tokens'), output: sum('output_tokens'), requests: sum('num_model_requests'), failed: sum('num_failed_requests') };
}

function sums(title, head, results, by, shown = (name) => name) {
  const names = [...new Set(results.map((each) => each[by]))];
  const rows = names.map((name) => [name, total(results.filter((each) => each[by] === name))]).sort(([, a], [, b]) => b.input + b.output - a.input - a.output);
  return h('div', { class: 'sums' }, h('h3', {}, title), table(title, [head, 'Requests', 'Failed', 'Input', 'Cached', 'Output'], rows.map(([name, each]) => [
    h('span', { class: 'name', dir: 'auto', title: name }, shown(name ?? '') || '(none)'), count(each.requests), count(each.failed), count(each.input), each.input ? `${Math.round((each.cached / each.input) * 100)} %` : '–', count(each.output),
  ])));
}

/** Draw the tokens of each day: cached input, other input, output. */
function chart(days) {
  const totals = days.map((day) => total(day.results));
  const most = Math.max(1, ...totals.map(({ input, output }) => input + output));
  const step = WIDTH / days.length;
  const label = (at) => new Date(days[at].start_time * 1000).toLocaleDateString([], { day: 'numeric', month: 'short', timeZone: 'UTC' });
  const bars = totals.map(({ input, cached, output, requests }, at) => {
    let top = HEIGHT;
    const piece = (value, name) => {
      const height = (value / most) * (HEIGHT - 10);
      top -= height;
      return value > 0 && svg('rect', { class: name, x: at * step + 3, y: top, width: step - 6, height: Math.max(height, 1) });
    };
    return svg('g', {}, svg('title', {}, `${label(at)}: ${count(input)} tokens of input, ${count(cached)} of them cached; ${count(output)} of output; ${count(requests)} requests`),
      svg('rect', { class: 'back', x: at * step + 3, y: 0, width: step - 6, height: HEIGHT }), piece(cached, 'cached'), piece(input - cached, 'input'), piece(output, 'output'),
      (days.length - 1 - at) % 3 === 0 && svg('text', { x: at * step + step / 2, y: HEIGHT + 16, 'text-anchor': 'middle' }, label(at)));
  });
  const whole = total(days.flatMap((day) => day.results));
  return h('figure', {}, svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT + FOOT}`, role: 'img', 'aria-label': `Tokens of the last ${days.length} days: ${count(whole.input)} of input, ${count(whole.output)} of output` }, bars),
    h('figcaption', { class: 'hint legend' }, [['cached', 'cached input'], ['input', 'other input'], ['output', 'output']].map(([name, words]) => h('span', {}, h('span', { class: `swatch ${name}`, 'aria-hidden': 'true' }), words)), h('span', {}, `most in a day: ${count(most)} tokens`)));
}
