// Compares two states of the contract and lists what would break somebody who was written against the older one.
// usage: node breaking.mjs OLD_DOCS NEW_DOCS
//
// A request that was accepted must stay accepted; an event that could be read must stay readable. So it depends on who
// sends a message which change breaks: requests must not gain demands, events must not lose promises or gain values.
import { readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parse } from 'yaml';

const incoming = new Set(['exec', 'terminal', 'end', 'cancel', 'execution', 'file_read', 'file_write', 'history', 'jobs', 'authz_answer', 'grant', 'ticket']);

async function load(docs) {
  const document = parse(await readFile(path.join(docs, 'asyncapi.yaml'), 'utf8'));
  const schemas = new Map();
  for (const file of await readdir(path.join(docs, 'schema'))) {
    if (file.endsWith('.schema.json')) schemas.set(file.replace('.schema.json', ''), JSON.parse(await readFile(path.join(docs, 'schema', file), 'utf8')));
  }
  return { document, schemas };
}

// direct is the union of both directions for what is shared, such as the actor: then neither may happen.
function directions(schemas) {
  const found = new Map();
  const mark = (name, direction) => {
    const have = found.get(name) ?? new Set();
    if (have.has(direction)) return;
    have.add(direction);
    found.set(name, have);
    for (const [, other] of JSON.stringify(schemas.get(name) ?? {}).matchAll(/"\$ref":"([a-z_]+)\.schema\.json"/g)) mark(other, direction);
  };
  const roots = [...schemas.keys()];
  for (const name of roots) mark(name, incoming.has(name) ? 'in' : 'out');
  return found;
}

const list = (x) => (Array.isArray(x) ? x : x === undefined ? [] : [x]);

function compare(at, before, after, direction, report) {
  const incomingHere = direction.has('in');
  const outgoing = direction.has('out');
  if (typeof before !== 'object' || before === null || typeof after !== 'object' || after === null) {
    if (before !== after) report(at, `is ${JSON.stringify(after)} and was ${JSON.stringify(before)}`);
    return;
  }
  for (const key of ['$ref', 'const', 'format', 'contentEncoding', 'pattern']) {
    if (before[key] !== after[key] && (incomingHere || before[key] !== undefined)) report(at, `${key} is ${JSON.stringify(after[key])} and was ${JSON.stringify(before[key])}`);
  }
  const types = [list(before.type), list(after.type)];
  if (before.type !== undefined || after.type !== undefined) {
    if (incomingHere && types[0].some((t) => !types[1].includes(t))) report(at, `no longer takes ${types[0]}`);
    if (outgoing && types[1].some((t) => !types[0].includes(t))) report(at, `may now be ${types[1]}`);
  }
  if (before.enum || after.enum) {
    const [had, has] = [before.enum ?? [], after.enum ?? []];
    if (incomingHere && after.enum) for (const v of before.enum ? had : ['anything']) if (!has.includes(v)) report(at, `no longer takes ${JSON.stringify(v)}`);
    if (outgoing && before.enum) for (const v of after.enum ? has : ['anything']) if (!had.includes(v)) report(at, `may now be ${JSON.stringify(v)}, which no reader knows`);
  }
  for (const key of ['minimum', 'minLength', 'minItems', 'minProperties']) {
    if (incomingHere && (after[key] ?? -Infinity) > (before[key] ?? -Infinity)) report(at, `${key} has risen to ${after[key]}`);
    if (outgoing && (after[key] ?? -Infinity) < (before[key] ?? -Infinity)) report(at, `${key} has fallen to ${after[key]}`);
  }
  for (const key of ['maximum', 'maxLength', 'maxItems', 'maxProperties']) {
    if (incomingHere && (after[key] ?? Infinity) < (before[key] ?? Infinity)) report(at, `${key} has fallen to ${after[key]}`);
    if (outgoing && (after[key] ?? Infinity) > (before[key] ?? Infinity)) report(at, `${key} has risen to ${after[key]}`);
  }
  const [needed, needs] = [list(before.required), list(after.required)];
  if (incomingHere) for (const n of needs) if (!needed.includes(n)) report(at, `now demands ${n}`);
  if (outgoing) for (const n of needed) if (!needs.includes(n)) report(at, `no longer promises ${n}`);
  for (const [name, was] of Object.entries(before.properties ?? {})) {
    const now = after.properties?.[name];
    if (now === undefined) report(at, `${name} is gone`);
    else compare(`${at}.${name}`, was, now, direction, report);
  }
  for (const key of ['items', 'additionalProperties', 'propertyNames']) {
    if (before[key] !== undefined || after[key] !== undefined) compareOpen(`${at}.${key}`, before[key], after[key], direction, report);
  }
  for (const key of ['anyOf', 'oneOf', 'allOf']) {
    const [had, has] = [list(before[key]), list(after[key])];
    if (had.length !== has.length) report(at, `${key} has ${has.length} branches and had ${had.length}`);
    else had.forEach((b, i) => compare(`${at}.${key}[${i}]`, b, has[i], direction, report));
  }
}

function compareOpen(at, before, after, direction, report) {
  if (typeof before === 'object' && typeof after === 'object') return compare(at, before, after, direction, report);
  // A schema that allowed more of a request, or promised less of an event, may change the other way only.
  if (direction.has('in') && after !== undefined && after !== true && after !== before) report(at, 'is stricter');
  if (direction.has('out') && (after === undefined || after === true) && before !== after) report(at, 'is looser');
}

export async function breaking(oldDocs, newDocs) {
  const [before, after] = [await load(oldDocs), await load(newDocs)];
  const found = [];
  const report = (at, what) => found.push(`${at}: ${what}`);
  const addresses = (d) => new Map(Object.values(d.document.channels).filter((c) => c.address).map((c) => [c.address, c]));
  const now = addresses(after);
  for (const [address, channel] of addresses(before)) {
    const same = now.get(address);
    if (!same) {
      report(address, 'is gone');
      continue;
    }
    for (const m of Object.keys(channel.messages ?? {})) if (!same.messages?.[m]) report(address, `no longer carries ${m}`);
  }
  for (const [name, schema] of Object.entries(before.document.components.schemas ?? {})) {
    const same = after.document.components.schemas?.[name];
    const direction = new Set([['RequestHeaders', 'FileWriteHeaders'].includes(name) ? 'in' : 'out']);
    if (!same) report(name, 'is gone');
    else compare(name, schema, same, direction, report);
  }
  const direction = directions(before.schemas);
  for (const [name, schema] of before.schemas) {
    const same = after.schemas.get(name);
    if (!same) report(`schema/${name}`, 'is gone');
    else compare(`schema/${name}`, schema, same, direction.get(name), report);
  }
  return found;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const found = await breaking(process.argv[2], process.argv[3]);
  for (const f of found) console.error(`breaks: ${f}`);
  if (found.length > 0) process.exit(1);
  console.log('contract: nothing breaks who was written against the older state');
}
