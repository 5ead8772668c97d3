// Numbers and times, in words.

const number = new Intl.NumberFormat('en');

export const count = (value) => (value === null || value === undefined ? '–' : number.format(value));

/** Return a duration: `420 ms`, `1.3 s`, `2 min 5 s`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** Return a time of day, with the day unless it is today. */
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  const sameDay = date.toDateString() === new Date().toDateString();
  const time = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return sameDay ? time : `${date.toLocaleDateString([], { weekday: 'short', day: 'numeric', month: 'short' })}, ${time}`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** Return the length of a plan's window. */
export function span(minutes) {
  if (minutes === null) return 'Window';
  if (minutes === 10_080) return 'Week';
  if (minutes % 1440 === 0) return `${minutes / 1440} days`;
  if (minutes % 60 === 0) return `${minutes / 60} hours`;
  return `${minutes} minutes`;
}

/** Return the cached share of input tokens. */
export const cachedShare = (tokens) => (tokens.input ? Math.round((tokens.cached / tokens.input) * 100) : 0);

/** Return how a client is called: the owner's own key has no name of its own. */
export const clientName = (name, app) => (app.owner && name === app.state.client && name.startsWith('key-') ? 'owner’s key' : name);

/** Return how a thread was served, in words. */
export const SERVED = {
  fresh: 'a fresh thread',
  replayed: 'a fresh thread with the whole history replayed',
  warm: 'a warm thread: only the new items were sent',
  parked: 'the parked turn, resumed',
};
