// The edge protocol, version 1, without any DOM: what docs/terminal-protocol.md specifies.

export const PROTOCOL = 'wakebus.terminal.v1';
const TICKET_PREFIX = 'wakebus.ticket.';
const MAX_INPUT = 4096; // bytes of one binary frame
const WINDOW = 16384; // bytes under way without an ack
const MAX_BACKLOG = 1 << 20; // bytes typed or pasted and not acked
const MAX_TAIL = 1024;
const ACK_EVERY = 32768; // bytes of output shown between acks
const GRANT_EVERY = 40000; // ms between fresh grants; the gateway asks every 60 s

/** What was typed and is not yet acked. Positions count this client's input in the present session. */
export class Backlog {
  constructor() { this.data = new Uint8Array(0); this.acked = 0; this.sent = 0; }

  /** Adds bytes; false when they do not fit, and then none of them is kept. */
  add(bytes) {
    if (this.data.length + bytes.length > MAX_BACKLOG) return false;
    const next = new Uint8Array(this.data.length + bytes.length);
    next.set(this.data);
    next.set(bytes, this.data.length);
    this.data = next;
    return true;
  }

  ack(position) {
    const n = Math.min(position - this.acked, this.data.length);
    if (n <= 0) return;
    this.data = this.data.slice(n);
    this.acked += n;
    this.sent = Math.max(this.sent, this.acked);
  }

  /** Sends again from what the gateway said has arrived. */
  resume(position) { this.ack(position); this.sent = this.acked; }

  /** Begins a new session's count and returns how many sent bytes may be lost. */
  restart() {
    const lost = this.sent - this.acked;
    this.data = this.data.slice(lost);
    this.acked = 0;
    this.sent = 0;
    return lost;
  }

  next() {
    const from = this.sent - this.acked;
    const n = Math.min(this.data.length - from, WINDOW - from, MAX_INPUT);
    if (n <= 0) return null;
    this.sent += n;
    return this.data.slice(from, from + n);
  }
}

function base64(bytes) {
  let text = '';
  for (const b of bytes) text += String.fromCharCode(b);
  return btoa(text);
}

/**
 * A terminal's connection over all its sockets. Events: state {state, message}, output {bytes, old, shown},
 * reset {bytes}, notice {message, code}, ended {reason, exitCode, message}.
 */
export class Connection extends EventTarget {
  constructor({ url, page, getTicket, getGrant, grantEvery, client, socket }) {
    super();
    Object.assign(this, { url, page, getGrant, grantEvery: grantEvery ?? GRANT_EVERY });
    this.getTicket = getTicket ?? (async () => '');
    this.client = client ?? crypto.randomUUID();
    this.makeSocket = socket ?? ((u, p) => new WebSocket(u, p));
    this.encoder = new TextEncoder();
    this.size = { cols: 80, rows: 24 };
    this.forget();
  }

  /** Forgets the session: the next connect begins a new one. */
  forget() {
    this.session = '';
    this.offset = 0;
    this.acked = 0;
    this.tail = new Uint8Array(0);
    this.backlog = new Backlog();
    this.pause = 250;
    this.finished = false;
  }

  say(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })); }

  async connect() {
    clearTimeout(this.timer);
    if (this.ws || this.connecting || this.finished) return;
    this.connecting = true;
    this.say('state', { state: this.session ? 'reconnecting' : 'connecting' });
    let ticket;
    try { ticket = await this.getTicket(); } catch { ticket = null; }
    this.connecting = false;
    if (ticket === null) return this.again();
    const protocols = ticket ? [PROTOCOL, TICKET_PREFIX + ticket] : [PROTOCOL];
    const ws = this.makeSocket(this.url, protocols);
    ws.binaryType = 'arraybuffer';
    this.ws = ws;
    this.known = false;
    this.old = false;
    this.arrived = 0;
    this.retry = 0;
    this.message = '';
    ws.onopen = () => ws.send(JSON.stringify({
      type: 'hello', page: this.page, client: this.client, ...this.size, flow: true,
      ...(this.session ? { session: this.session, offset: this.offset, tail: base64(this.tail) } : {}),
    }));
    if (this.getGrant) this.renewals = setInterval(() => this.renew(ws), this.grantEvery);
    ws.onmessage = (e) => { if (this.ws === ws) this.take(e.data); };
    ws.onclose = (e) => { if (this.ws === ws) this.closed(e); };
  }

  take(data) {
    if (typeof data !== 'string') return this.output(new Uint8Array(data));
    const f = JSON.parse(data);
    switch (f.type) {
      case 'phase': return this.phase(f);
      case 'ack':
        this.arrived = f.input;
        if (this.known) this.backlog.ack(f.input);
        return this.flush();
      case 'gap':
        this.offset += f.bytes ?? 0;
        this.tail = new Uint8Array(0);
        return this.say('reset', { bytes: f.bytes ?? null });
      case 'error':
        this.message = f.message;
        return this.say('notice', { message: f.message, code: f.code, fatal: f.fatal });
      case 'closed':
        this.last = f;
        this.retry = f.retry_after_ms ?? 0;
    }
  }

  phase(f) {
    if (f.offset !== undefined) this.offset = f.offset;
    this.old = f.phase === 'replaying';
    if (f.session && !this.known) {
      this.known = true;
      if (f.session !== this.session) {
        const lost = this.backlog.restart();
        if (this.session && lost > 0) this.say('notice', { code: 'input_lost', message: `${lost} typed bytes may not have arrived.` });
        if (!this.session) this.say('reset', { bytes: 0 });
        this.session = f.session;
        this.acked = this.offset;
      }
      this.backlog.resume(this.arrived);
    }
    if (f.phase === 'live') this.pause = 250;
    this.say('state', { state: f.phase });
    this.flush();
  }

  output(bytes) {
    this.offset += bytes.length;
    const joined = new Uint8Array(this.tail.length + Math.min(bytes.length, MAX_TAIL));
    joined.set(this.tail);
    joined.set(bytes.slice(-MAX_TAIL), this.tail.length);
    this.tail = joined.slice(-MAX_TAIL);
    const at = this.offset;
    const ws = this.ws;
    // The window opens again only when the bytes were really drawn, so a flood never piles up in this tab.
    this.say('output', { bytes, old: this.old, shown: () => {
      if (ws !== this.ws || ws.readyState !== 1 || at < this.acked) return;
      if (at - this.acked < ACK_EVERY && at !== this.offset) return;
      this.acked = at;
      ws.send(JSON.stringify({ type: 'ack', output: at }));
    } });
  }

  /** Types text or bytes; pastes are cut into frames. False when too much is waiting already. */
  type(input) {
    const bytes = typeof input === 'string' ? this.encoder.encode(input) : input;
    if (!this.backlog.add(bytes)) {
      this.say('notice', { code: 'input_overflow', message: 'Too much input is waiting; this was not typed.' });
      return false;
    }
    this.flush();
    return true;
  }

  flush() {
    if (!this.known || this.ws?.readyState !== 1) return;
    for (let p = this.backlog.next(); p; p = this.backlog.next()) this.ws.send(p);
  }

  resize(cols, rows) {
    if (!(cols >= 1 && rows >= 1)) return; // a hidden tab measures nothing
    this.size = { cols, rows };
    if (this.known && this.ws?.readyState === 1) this.ws.send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  /** Sends a fresh grant. Without one the old holds until it ends, and the next may come in time. */
  async renew(ws) {
    let grant;
    try { grant = await this.getGrant(); } catch { return; }
    if (this.ws === ws) this.grant(grant);
  }

  grant(grant) { if (this.ws?.readyState === 1) this.ws.send(JSON.stringify({ type: 'grant', grant })); }

  detach() { if (this.ws?.readyState === 1) this.ws.send(JSON.stringify({ type: 'detach' })); }

  /** Looks at once whether the socket is alive: a tab that slept may hold a dead one. */
  wake() {
    if (this.finished) return;
    if (this.ws && this.ws.readyState > 1) { clearInterval(this.renewals); this.ws = null; }
    if (!this.ws) { this.pause = 250; this.connect(); }
  }

  closed(event) {
    this.ws = null;
    clearInterval(this.renewals);
    const last = this.last;
    this.last = null;
    const reason = last?.reason ?? { 1000: 'exited', 4401: 'revoked', 4403: 'denied', 4409: 'replaced', 4429: 'too_many' }[event.code];
    if (!reason || reason === 'restarting' || reason === 'slow' || (reason === 'failed' && this.session)) return this.again();
    this.finished = true;
    this.say('ended', { reason, exitCode: last?.exit_code, message: this.message });
  }

  again() {
    const wait = Math.max(this.pause * (0.5 + Math.random()), this.retry ?? 0);
    this.pause = Math.min(this.pause * 2, 5000);
    this.say('state', { state: 'reconnecting' });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait);
  }
}
