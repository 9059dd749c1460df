// Walks through what a web app does, against a running instance, and fails when anything is not as it should be. With a
// private key (a JWK file) in GRANT_KEY each request carries a grant, as it does outside a dev instance.
//
//   worker dev &  . .wakebus/env; NATS_URL=$NATS_URL node dist/check.js
import assert from 'node:assert/strict';
import { createPrivateKey, generateKeyPairSync, randomUUID, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { open, serve } from './app.js';
import { mintGrant, Refused, Wakebus, type Event, type Gap, type Result } from './wakebus.js';

const nc = await open(process.env.NATS_URL ?? '');
const tenant = process.env.TENANT ?? 'dev';
const jwk = process.env.GRANT_KEY ? (JSON.parse(readFileSync(process.env.GRANT_KEY, 'utf8')) as { kid: string }) : undefined;

function signedWith(key: KeyObject, kid: string, claims: { tenant?: string; conversation?: string } = {}): Wakebus {
  return new Wakebus(nc, { tenant, grant: (about, body) => mintGrant(key, kid, { sub: 'ann', tenant, tier: 'pro', ...about, ...claims }, { body }) });
}

const key = jwk && createPrivateKey({ key: jwk, format: 'jwk' });
const bus = jwk && key ? signedWith(key, jwk.kid) : new Wakebus(nc, { tenant });
const conversation = `web-${randomUUID().slice(0, 8)}`;
const utf8 = new TextDecoder();

async function all(events: AsyncIterable<Event>): Promise<{ events: Event[]; stdout: string; result: Result }> {
  const seen: Event[] = [];
  let stdout = '';
  for await (const e of events) {
    seen.push(e);
    if (e.kind === 'stdout') stdout += utf8.decode(e.data);
  }
  const last = seen.at(-1);
  assert.equal(last?.kind, 'result');
  return { events: seen, stdout, result: last?.body as Result };
}

const steps: [string, () => Promise<void>][] = [
  ['publishes a command and streams it', async () => {
    const { events, stdout, result } = await all(bus.run({ conversation_id: conversation, shell: 'echo one; echo two >&2; sleep 0.2; echo three' }));
    assert.equal(stdout, 'one\nthree\n');
    assert.equal(result.outcome, 'exited');
    assert.equal(result.exit_code, 0);
    assert.deepEqual(events.map((e) => e.seq), events.map((_, i) => i + 1), 'each event once and in order');
  }],
  ['resumes at a sequence, and gets exactly the rest', async () => {
    const job = await bus.exec({ conversation_id: conversation, shell: 'for i in 1 2 3 4 5; do echo $i; sleep 0.1; done' });
    const first: Event[] = [];
    for await (const e of bus.events(job)) {
      first.push(e);
      if (e.kind === 'stdout') break; // the browser leaves
    }
    const next = (first.at(-1)?.seq ?? 0) + 1;
    const rest = await all(bus.events(job, { fromSeq: next }));
    assert.equal(rest.events[0]?.seq, next);
    assert.equal(first.filter((e) => e.kind === 'stdout').map((e) => utf8.decode(e.data)).join('') + rest.stdout, '1\n2\n3\n4\n5\n');
    const again = await all(bus.events(job)); // long after: everything from history
    assert.equal(again.stdout, '1\n2\n3\n4\n5\n');
  }],
  ['shows a gap where output was left out', async () => {
    const { events, result } = await all(bus.run({ conversation_id: conversation, shell: 'head -c 300000 /dev/zero | tr "\\0" x; echo end', stream_bytes: 1000 }));
    const gap = events.find((e) => e.kind === 'gap')?.body as Gap;
    assert.equal(gap.why, 'cap');
    assert.ok((gap.bytes ?? 0) > 0);
    assert.equal(result.truncated, true);
    const tail = events.filter((e) => e.kind === 'stdout').map((e) => utf8.decode(e.data)).join('');
    assert.ok(tail.endsWith('end\n'), 'the end of the output comes after the gap');
  }],
  ['cancels a conversation', async () => {
    let canceled = false;
    let result: Result | undefined;
    for await (const e of bus.run({ conversation_id: conversation, shell: 'echo up; sleep 600' })) {
      if (e.kind === 'stdout' && !canceled) {
        canceled = true;
        await bus.cancelConversation(conversation, 'enough');
      }
      if (e.kind === 'result') result = e.body as Result;
    }
    assert.equal(result?.outcome, 'canceled');
    const { jobs } = await bus.jobs({ conversation_id: conversation });
    assert.equal(jobs[0]?.outcome, 'canceled');
  }],
  ['writes and reads a file', async () => {
    const data = new Uint8Array([0, 1, 2, 253, 254, 255]);
    assert.equal((await bus.writeFile(conversation, 'a/b.bin', data)).size, data.length);
    assert.deepEqual(new Uint8Array((await bus.readFile(conversation, 'a/b.bin')).data), data);
    await assert.rejects(bus.readFile(conversation, 'nothing'), (e) => e instanceof Refused && e.reason === 'not_found' && e.status === 404);
  }],
  ['runs the same id once', async () => {
    const job = randomUUID();
    const first = await all(bus.run({ conversation_id: conversation, job_id: job, shell: 'echo x >> once; cat once' }));
    const second = await all(bus.run({ conversation_id: conversation, job_id: job, shell: 'echo x >> once; cat once' }));
    assert.equal(first.stdout, 'x\n');
    assert.equal(second.stdout, 'x\n');
  }],
  ['refuses an id that would reach another subject', async () => {
    await assert.rejects(bus.cancelJob('a.>'), TypeError);
    assert.throws(() => bus.events('*'), TypeError);
  }],
  ['serves a browser that comes back', async () => {
    const server = serve(bus).listen(0, '127.0.0.1');
    await new Promise((go) => server.once('listening', go));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    try {
      const { job } = (await (await fetch(`${base}/run`, { method: 'POST', body: JSON.stringify({ conversation, shell: 'echo héllo' }) })).json()) as { job: string };
      const whole = await (await fetch(`${base}/jobs/${job}/events`)).text();
      const ids = [...whole.matchAll(/^id: (\d+)$/gm)].map((m) => Number(m[1]));
      assert.deepEqual(ids, ids.map((_, i) => i + 1));
      assert.match(whole, /"text":"héllo\\n"/);
      const rest = await (await fetch(`${base}/jobs/${job}/events`, { headers: { 'last-event-id': String(ids.length - 1) } })).text();
      assert.deepEqual([...rest.matchAll(/^id: (\d+)$/gm)].map((m) => Number(m[1])), [ids.length]);
      assert.equal((await fetch(`${base}/jobs/a%2A/events`)).status, 400);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }],
  ...(jwk && key ? ([['is denied by a grant that is forged, or for something else', async () => {
    for (const wrong of [signedWith(generateKeyPairSync('ed25519').privateKey, jwk.kid), signedWith(key, 'no-such-key'),
      signedWith(key, jwk.kid, { tenant: 'other' }), signedWith(key, jwk.kid, { conversation: 'other' }), new Wakebus(nc, { tenant })]) {
      const { result, stdout } = await all(wrong.run({ conversation_id: conversation, shell: 'echo run' }));
      assert.equal(result.outcome, 'denied');
      assert.equal(stdout, '');
    }
  }]] as [string, () => Promise<void>][]) : []),
  ['ends the conversation', async () => {
    const { result } = await all(bus.events(await bus.end(conversation)));
    assert.equal(result.outcome, 'ended');
    assert.equal(result.plan, 'teardown');
  }],
];

let failed = 0;
for (const [name, step] of steps) {
  const began = Date.now();
  try {
    await Promise.race([step(), new Promise((_, no) => setTimeout(() => no(new Error('took longer than 60 s')), 60_000).unref())]);
    console.log(`ok    ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}: ${error instanceof Error ? error.message : String(error)}`);
  }
}
await nc.close();
console.log(`web example: ${steps.length - failed} of ${steps.length} steps held`);
process.exit(failed === 0 ? 0 : 1);
