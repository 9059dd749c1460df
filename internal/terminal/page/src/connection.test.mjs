import test from 'node:test';
import assert from 'node:assert/strict';
import { Backlog, Connection } from './connection.mjs';

globalThis.CustomEvent ??= class extends Event { constructor(t, o) { super(t); this.detail = o?.detail; } };

/** A socket that the test speaks for. */
class Fake {
  constructor() { this.sent = []; this.readyState = 1; }
  send(x) { this.sent.push(x); }
  say(frame) { this.onmessage({ data: typeof frame === 'object' && !(frame instanceof Uint8Array) ? JSON.stringify(frame) : frame.buffer }); }
  typed() { return this.sent.filter((x) => typeof x !== 'string').map((x) => new TextDecoder().decode(x)).join(''); }
}

async function connected(options = {}) {
  const sockets = [];
  const c = new Connection({ ...options, url: 'ws://x/', page: 'p', client: 'c', socket: () => { const s = new Fake(); sockets.push(s); return s; } });
  await c.connect();
  sockets[0].onopen();
  sockets[0].say({ type: 'ack', input: 0 });
  sockets[0].say({ type: 'phase', phase: 'replaying', session: 's1', offset: 0 });
  sockets[0].say({ type: 'phase', phase: 'live', session: 's1', offset: 0 });
  return { c, sockets };
}

async function reconnect(c, sockets) {
  sockets.at(-1).onclose({ code: 1006 });
  clearTimeout(c.timer);
  await c.connect();
  sockets.at(-1).onopen();
  return sockets.at(-1);
}

test('a large paste is cut into frames within the window', async () => {
  const { c, sockets } = await connected();
  c.type('é'.repeat(20000));
  const frames = sockets[0].sent.filter((x) => typeof x !== 'string');
  assert.ok(frames.every((f) => f.length <= 4096));
  assert.equal(frames.reduce((n, f) => n + f.length, 0), 16384);
  sockets[0].say({ type: 'ack', input: 16384 });
  sockets[0].say({ type: 'ack', input: 32768 });
  assert.equal(sockets[0].typed(), 'é'.repeat(20000));
});

test('what was not acked is sent again once the gateway said how much arrived', async () => {
  const { c, sockets } = await connected();
  c.type('abcdef');
  const s = await reconnect(c, sockets);
  s.say({ type: 'ack', input: 4 });
  s.say({ type: 'phase', phase: 'replaying', session: 's1', offset: 0 });
  assert.equal(s.typed(), 'ef');
});

test('in another session what was sent is lost and said, and what was not sent is typed', async () => {
  const { c, sockets } = await connected();
  c.type('lost');
  sockets[0].readyState = 3;
  c.type(' kept');
  const notices = [];
  c.addEventListener('notice', (e) => notices.push(e.detail.code));
  const s = await reconnect(c, sockets);
  s.say({ type: 'ack', input: 0 });
  s.say({ type: 'phase', phase: 'replaying', session: 's2', offset: 9 });
  assert.deepEqual(notices, ['input_lost']);
  assert.equal(s.typed(), ' kept');
});

test('the hello of a return names session, offset and tail', async () => {
  const { c, sockets } = await connected();
  sockets[0].say(new TextEncoder().encode('hello'));
  const s = await reconnect(c, sockets);
  const hello = JSON.parse(s.sent[0]);
  assert.equal(hello.session, 's1');
  assert.equal(hello.offset, 5);
  assert.equal(atob(hello.tail), 'hello');
});

test('a backlog refuses what does not fit, whole', () => {
  const b = new Backlog();
  assert.equal(b.add(new Uint8Array(1 << 20)), true);
  assert.equal(b.add(new Uint8Array(1)), false);
  assert.equal(b.data.length, 1 << 20);
});

test('a denial ends it, a restart comes back', async () => {
  const { c, sockets } = await connected();
  sockets[0].say({ type: 'closed', reason: 'restarting', retry_after_ms: 10 });
  sockets[0].onclose({ code: 1012 });
  assert.equal(c.finished, false);
  clearTimeout(c.timer);
  await c.connect();
  let ended;
  c.addEventListener('ended', (e) => { ended = e.detail; });
  sockets[1].say({ type: 'error', code: 'no_edit_access', message: 'No.', fatal: true, terminal: 'p' });
  sockets[1].say({ type: 'closed', reason: 'denied' });
  sockets[1].onclose({ code: 4403 });
  assert.equal(ended.reason, 'denied');
  assert.equal(ended.message, 'No.');
});

test('a gap takes no room: the window opens by what was shown, before and after it', async () => {
  const { c, sockets } = await connected();
  const shown = [];
  c.addEventListener('output', (e) => shown.push(e.detail.shown));
  const acks = () => sockets[0].sent.filter((x) => typeof x === 'string').map((x) => JSON.parse(x)).filter((f) => f.type === 'ack').map((f) => f.output);
  sockets[0].say(new Uint8Array(40000));
  sockets[0].say({ type: 'gap', bytes: 1e6 });
  sockets[0].say(new Uint8Array(10));
  shown.forEach((f) => f());
  assert.deepEqual(acks(), [40000, 1040010]);
});

test('fresh grants are sent while connected, and a failing source ends nothing', async () => {
  let n = 0;
  let told;
  const { c, sockets } = await connected({ grantEvery: 1, getGrant: async () => { if (++n === 1) throw new Error('no'); told?.(); return `g${n}`; } });
  const grants = () => sockets[0].sent.filter((x) => typeof x === 'string').map((x) => JSON.parse(x)).filter((f) => f.type === 'grant').map((f) => f.grant);
  while (grants().length < 2) await new Promise((ok) => { told = () => setImmediate(ok); });
  assert.deepEqual(grants().slice(0, 2), ['g2', 'g3']);
  sockets[0].onclose({ code: 1006 });
  clearTimeout(c.timer);
});
