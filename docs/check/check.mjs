// Checks the contract: docs/asyncapi.yaml by AsyncAPI's own parser, every schema by a validator of its draft, and that
// each schema is reached from the document.
import { readFile, readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { Parser } from '@asyncapi/parser';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

const docs = path.resolve(process.argv[2] ?? fileURLToPath(new URL('..', import.meta.url)));
const document = path.join(docs, 'asyncapi.yaml');
const problems = [];

const text = await readFile(document, 'utf8');
const { document: parsed, diagnostics } = await new Parser().parse(text, { source: document });
for (const d of diagnostics) {
  // 0 is an error, 1 a warning; hints and advice are matters of taste.
  if (d.severity <= 1) problems.push(`asyncapi.yaml:${d.range.start.line + 1} ${d.path.join('.')}: ${d.message} (${d.code})`);
}
if (!parsed) problems.push('asyncapi.yaml cannot be read as an AsyncAPI document');

const ajv = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false, strictTuples: false, allErrors: true });
addFormats(ajv);
const files = (await readdir(path.join(docs, 'schema'))).filter((f) => f.endsWith('.schema.json'));
const schemas = new Map();
for (const file of files) {
  const schema = JSON.parse(await readFile(path.join(docs, 'schema', file), 'utf8'));
  schemas.set(file, schema);
  ajv.addSchema(schema);
}
for (const [file, schema] of schemas) {
  try {
    ajv.getSchema(schema.$id);
  } catch (error) {
    problems.push(`schema/${file}: ${error.message}`);
  }
}

const reached = new Set();
const reach = (source) => {
  for (const [, file] of source.matchAll(/([a-z_]+\.schema\.json)/g)) {
    if (reached.has(file)) continue;
    reached.add(file);
    if (schemas.has(file)) reach(JSON.stringify(schemas.get(file)).replaceAll(schemas.get(file).$id, ''));
    else problems.push(`schema/${file} is referred to and does not exist`);
  }
};
reach(text);
// A ticket is no message: it travels in the WebSocket's handshake.
for (const file of files) if (!reached.has(file) && file !== 'ticket.schema.json') problems.push(`schema/${file} belongs to no message`);

for (const p of problems) console.error(p);
if (problems.length > 0) process.exit(1);
console.log(`contract: ${parsed.channels().all().length} channels, ${parsed.messages().all().length} messages, ${files.length} schemas hold`);
