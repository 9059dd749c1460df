// A checker that finds nothing proves nothing: each change here must be told as a break, or must not.
import test from 'node:test';
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { breaking } from './breaking.mjs';

const docs = fileURLToPath(new URL('..', import.meta.url));

async function changed(t, file, edit) {
  const dir = await mkdtemp(path.join(os.tmpdir(), 'wakebus-contract-'));
  t.after(() => rm(dir, { recursive: true }));
  await cp(path.join(docs, 'asyncapi.yaml'), path.join(dir, 'asyncapi.yaml'));
  await cp(path.join(docs, 'schema'), path.join(dir, 'schema'), { recursive: true });
  const at = path.join(dir, file);
  const before = await readFile(at, 'utf8');
  const after = edit(before);
  assert.notEqual(after, before, 'the edit found nothing to change');
  await writeFile(at, after);
  return dir;
}

const json = (edit) => (text) => {
  const schema = JSON.parse(text);
  edit(schema);
  return JSON.stringify(schema);
};

const breaks = {
  'a request that demands more': ['schema/exec.schema.json', json((s) => s.required.push('cwd')), /now demands cwd/],
  'a request that loses a field': ['schema/exec.schema.json', json((s) => delete s.properties.order), /order is gone/],
  'a request that takes fewer values': ['schema/exec.schema.json', json((s) => s.properties.on_limit.enum.pop()), /no longer takes/],
  'a request with a lower limit': ['schema/exec.schema.json', json((s) => (s.properties.argv.maxItems = 8)), /maxItems has fallen/],
  'an event that promises less': ['schema/result.schema.json', json((s) => s.required.shift()), /no longer promises/],
  'an event that loses a field': ['schema/result.schema.json', json((s) => delete s.properties.exit_code), /exit_code is gone/],
  'an event with a new outcome': ['schema/result.schema.json', json((s) => s.properties.outcome.enum.push('exploded')), /may now be "exploded"/],
  'an event whose field changes its type': ['schema/result.schema.json', json((s) => (s.properties.exit_code.type = 'string')), /may now be string/],
  'a shared schema that changes': ['schema/reason.schema.json', json((s) => s.enum.pop()), /no longer takes/],
  'a subject that moves': ['asyncapi.yaml', (s) => s.replace("'sandbox.exec.{tenant}'", "'sandbox.run.{tenant}'"), /sandbox.exec.{tenant}: is gone/],
  'a header that is gone': ['asyncapi.yaml', (s) => s.replace('        Wb-Owner:', '        Wb-Holder:'), /Wb-Owner is gone/],
};

for (const [name, [file, edit, told]] of Object.entries(breaks)) {
  test(`${name} breaks`, async (t) => {
    const found = await breaking(docs, await changed(t, file, edit));
    assert.match(found.join('\n'), told);
  });
}

const holds = {
  'a request that takes one more field': ['schema/exec.schema.json', json((s) => (s.properties.nice = { type: 'integer' }))],
  'an event that promises more': ['schema/result.schema.json', json((s) => s.required.push('message'))],
  'a new subject': ['asyncapi.yaml', (s) => s.replace('operations:', "  more:\n    address: 'sandbox.more'\noperations:")],
};

for (const [name, [file, edit]] of Object.entries(holds)) {
  test(`${name} does not break`, async (t) => {
    assert.deepEqual(await breaking(docs, await changed(t, file, edit)), []);
  });
}

test('the check of the document finds a reference to a schema that is not there', async (t) => {
  const dir = await changed(t, 'asyncapi.yaml', (s) => s.replace('./schema/exec.schema.json', './schema/exek.schema.json'));
  assert.throws(() => execFileSync('node', [path.join(docs, 'check/check.mjs'), dir], { stdio: 'pipe' }), /exek/);
});

test('the check of the document finds a channel that does not exist', async (t) => {
  const dir = await changed(t, 'asyncapi.yaml', (s) => s.replace("$ref: '#/channels/exec'", "$ref: '#/channels/nowhere'"));
  assert.throws(() => execFileSync('node', [path.join(docs, 'check/check.mjs'), dir], { stdio: 'pipe' }), /nowhere|channel/);
});
