// Requests of the page: each carries the token of the session, which no other page knows.

const API = '/turnbridge/api';
const KEPT = 'turnbridge.token';

/** An error as the gateway tells it. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let token = localStorage.getItem(KEPT);
/** Called when the session has ended. */
export const onEnded = { call: () => {} };

export const hasSession = () => token !== null;

function keep(opened) {
  token = opened.token;
  localStorage.setItem(KEPT, token);
  return opened;
}

function forget() {
  token = null;
  localStorage.removeItem(KEPT);
}

/** Open a session by the code of a link. */
export async function openByCode(code) {
  return keep(await read(await fetch(`${API}/code`, options('POST', { code }))));
}

/** Open a session by a key, which is not kept. */
export async function openByKey(key) {
  return keep(await read(await fetch(`${API}/session`, options('POST', {}, { authorization: `Bearer ${key}` }))));
}

/** End the session. */
export async function close() {
  try {
    await send('DELETE', '/session');
  } finally {
    forget();
  }
}

/** Return the headers by which a request belongs to the session. */
export const ownHeaders = () => ({ 'x-turnbridge-page-token': token ?? '' });

/** Send a request for the page's own data, and return the answer. */
export async function send(method, path, body) {
  return read(await checked(await fetch(`${API}${path}`, options(method, body, ownHeaders()))));
}

/** Return the stream of events of the page's own data. */
export async function follow(path, signal) {
  const response = await checked(await fetch(`${API}${path}`, { ...options('GET', undefined, ownHeaders()), signal }));
  if (!response.ok) await read(response);
  return events(response.body);
}

async function checked(response) {
  if (response.status === 401 && token !== null) {
    forget();
    onEnded.call();
  }
  return response;
}

function options(method, body, headers = {}) {
  const given = body === undefined ? {} : { 'content-type': 'application/json' };
  return { method, headers: { ...given, ...headers }, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store' };
}

/** Return the JSON of an answer; throws what the gateway refused. */
export async function read(response) {
  let content;
  try {
    content = await response.json();
  } catch {
    throw new Refused(response.status, `The gateway answered ${response.status} without JSON.`);
  }
  if (!response.ok) throw new Refused(response.status, content.error?.message ?? `The gateway answered ${response.status}.`);
  return content;
}

/** Yield the name and the data of each server-sent event. */
export async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split('\n\n');
      rest = frames.pop();
      for (const frame of frames) {
        const lines = frame.split('\n');
        const field = (name) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2)).join('\n');
        const data = field('data');
        if (data && data !== '[DONE]') yield { name: field('event'), data: JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
