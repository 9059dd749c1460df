// A web app in small: it runs commands for its users and streams what they print to the browser as server-sent events.
// An event's id is its sequence, so that a browser that was away comes back with Last-Event-ID and gets exactly the rest.
//
//   NATS_URL=... node dist/app.js
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { pathToFileURL } from 'node:url';
import { connect, type NatsConnection } from '@nats-io/transport-node';
import { Refused, Wakebus, type Event } from './wakebus.js';

export async function open(url: string): Promise<NatsConnection> {
  const at = new URL(url);
  const inboxPrefix = process.env.WAKEBUS_INBOX_PREFIX;
  return connect({
    servers: at.host, user: decodeURIComponent(at.username), pass: decodeURIComponent(at.password), name: 'web app example',
    maxReconnectAttempts: -1, ...(inboxPrefix ? { inboxPrefix } : {}),
  });
}

const page = `<!doctype html><meta charset="utf-8"><title>Wakebus</title>
<form><input name="shell" size="60" value="for i in 1 2 3; do echo $i; sleep 1; done" aria-label="command"><button>run</button>
<button type="button" id="cancel">cancel</button></form><pre></pre>
<script>
const out = document.querySelector('pre');
const show = (e) => {
  const event = JSON.parse(e.data);
  if (event.text !== undefined) out.append(event.text);
  else if (event.kind === 'gap') out.append('[' + (event.body.bytes ?? 'some') + ' bytes are not shown]\\n');
  else if (event.kind === 'result') { out.append('[' + event.body.outcome + ' ' + (event.body.exit_code ?? event.body.reason ?? '') + ']\\n'); source.close(); }
};
let source;
document.querySelector('form').onsubmit = async (e) => {
  e.preventDefault();
  const answer = await fetch('/run', { method: 'POST', body: JSON.stringify({ conversation: 'page', shell: e.target.shell.value }) });
  const { job, error } = await answer.json();
  if (error) return out.append('[' + error + ']\\n');
  source = new EventSource('/jobs/' + job + '/events');
  source.onmessage = show;
};
document.querySelector('#cancel').onclick = () => fetch('/conversations/page/cancel', { method: 'POST' });
</script>`;

async function body(req: IncomingMessage): Promise<Record<string, unknown>> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of req as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > 64 << 10) throw new Refused('content_too_large', 'The request is too large.', 413, false);
    parts.push(part);
  }
  return size === 0 ? {} : (JSON.parse(Buffer.concat(parts).toString()) as Record<string, unknown>);
}

// Output is bytes and may end within a character; a decoder per stream keeps the rest for the next piece.
function shower(): (e: Event) => string {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  return (e) => {
    const text = e.kind === 'stdout' || e.kind === 'stderr' ? decoders[e.kind].decode(e.data, { stream: true }) : undefined;
    return JSON.stringify(text === undefined ? { kind: e.kind, body: e.body } : { kind: e.kind, text });
  };
}

async function stream(bus: Wakebus, job: string, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const left = new AbortController();
  res.on('close', () => left.abort());
  const fromSeq = Number(req.headers['last-event-id'] ?? 0) + 1;
  if (!Number.isSafeInteger(fromSeq) || fromSeq < 1) throw new Refused('invalid_request', 'Last-Event-ID is no sequence.', 400, false);
  const events = bus.events(job, { fromSeq, signal: left.signal });
  res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const show = shower();
  for await (const e of events) {
    if (!res.write(`id: ${e.seq}\ndata: ${show(e)}\n\n`)) await new Promise((go) => res.once('drain', go).once('close', go));
  }
  res.end();
}

export function serve(bus: Wakebus): Server {
  const route = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const [, what = '', id = '', action = ''] = new URL(req.url ?? '/', 'http://app').pathname.split('/');
    const json = (status: number, value: unknown) => res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    if (req.method === 'GET' && what === '') res.writeHead(200, { 'content-type': 'text/html' }).end(page);
    else if (req.method === 'GET' && what === 'jobs' && action === 'events') await stream(bus, id, req, res);
    else if (req.method === 'POST' && what === 'run') {
      const { conversation, shell, ...more } = await body(req);
      json(202, { job: await bus.exec({ ...more, conversation_id: String(conversation), shell: String(shell) }) });
    } else if (req.method === 'POST' && what === 'conversations' && action === 'cancel') {
      await bus.cancelConversation(id, 'asked for on the page');
      json(202, {});
    } else json(404, { error: 'not found' });
  };
  return createServer((req, res) => {
    route(req, res).catch((error: unknown) => {
      const known = error instanceof Refused ? error : undefined;
      if (known?.retryAfterMs) res.setHeader('retry-after', Math.ceil(known.retryAfterMs / 1000));
      if (!res.headersSent) res.writeHead(known?.status ?? (error instanceof TypeError || error instanceof SyntaxError ? 400 : 500), { 'content-type': 'application/json' });
      res.end(JSON.stringify({ error: known?.reason ?? 'error' }));
    });
  });
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const nc = await open(process.env.NATS_URL ?? 'nats://127.0.0.1:4222');
  serve(new Wakebus(nc, { tenant: process.env.TENANT ?? 'dev' })).listen(Number(process.env.PORT ?? 8080), '127.0.0.1', function (this: Server) {
    console.log('listening', this.address());
  });
}
