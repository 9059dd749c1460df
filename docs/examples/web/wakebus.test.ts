import test from 'node:test';
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, verify } from 'node:crypto';
import { mintGrant, Sorter, type Event } from './wakebus.js';

const event = (seq: number, kind = 'stdout'): Event => ({ kind, job: 'j', run: 0, seq, stdoutOffset: 0, stderrOffset: 0 });

test('in whatever order and however often events come, each is given once and in order', () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round++) {
    const n = 1 + random(20);
    const from = 1 + random(3);
    const sent = Array.from({ length: n }, (_, i) => i + from).flatMap((s) => Array.from({ length: 1 + random(2) }, () => s));
    for (let i = sent.length - 1; i > 0; i--) {
      const k = random(i + 1);
      [sent[i], sent[k]] = [sent[k]!, sent[i]!];
    }
    const sorter = new Sorter(from);
    const got: number[] = [];
    for (const s of sent) {
      sorter.push(event(s));
      got.push(...sorter.take().map((e) => e.seq));
    }
    assert.deepEqual(got, Array.from({ length: n }, (_, i) => i + from));
    assert.equal(sorter.missing, false);
  }
});

test('a result is held until all below it are in', () => {
  const sorter = new Sorter(1);
  sorter.push(event(3, 'result'));
  sorter.push(event(1));
  assert.deepEqual(sorter.take().map((e) => e.seq), [1]);
  assert.equal(sorter.missing, true);
  sorter.push(event(2));
  assert.deepEqual(sorter.take().map((e) => e.seq), [2, 3]);
});

test('a hole that is given up is skipped, and what was held goes on', () => {
  const sorter = new Sorter(1);
  for (const s of [4, 5, 7]) sorter.push(event(s));
  assert.equal(sorter.skip(), 1);
  assert.deepEqual(sorter.take().map((e) => e.seq), [4, 5]);
  assert.equal(sorter.next, 6);
});

test('a grant is signed, bound and soon over', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const body = new TextEncoder().encode('{"v":1}');
  const token = mintGrant(privateKey, 'k1', { sub: 'ann', tenant: 'acme', job: 'j' }, { body, now: 1_000_000, seconds: 60 });
  const [head, claims, signature] = token.split('.') as [string, string, string];
  assert.ok(verify(null, Buffer.from(`${head}.${claims}`), publicKey, Buffer.from(signature, 'base64url')));
  assert.deepEqual(JSON.parse(Buffer.from(head, 'base64url').toString()), { alg: 'EdDSA', typ: 'JWT', kid: 'k1' });
  const grant = JSON.parse(Buffer.from(claims, 'base64url').toString()) as Record<string, unknown>;
  assert.equal(grant.exp, 1060);
  assert.equal(grant.req, createHash('sha256').update(body).digest('hex'));
  assert.equal(grant.verdict, 'allow');
});
