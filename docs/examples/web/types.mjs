// Writes the message types in wakebus.ts from docs/schema. `node types.mjs --check` only says whether they are up to date.
import { readFile, writeFile } from 'node:fs/promises';

const schemas = new URL('../../schema/', import.meta.url);
const target = new URL('wakebus.ts', import.meta.url);
const names = { exec: 'ExecRequest', end: 'EndRequest', result: 'Result', gap: 'Gap', waiting: 'Waiting', planned: 'Planned', stopping: 'Stopping',
  jobs_answer: 'JobsAnswer', file_written: 'FileWritten', grant: 'Grant', reason: 'Reason', timing: 'Timing' };

const refers = (ref) => {
  const name = names[ref.replace('.schema.json', '')];
  return name ?? 'Record<string, unknown>'; // the run's record is the workers' own affair
};

function type(s, indent) {
  if (s.$ref) return refers(s.$ref);
  if (s.const !== undefined) return JSON.stringify(s.const);
  if (s.enum) return s.enum.map((v) => JSON.stringify(v)).join(' | ');
  if (s.anyOf) return [...new Set(s.anyOf.map((a) => type(a, indent)))].join(' | ');
  if (Array.isArray(s.type)) return s.type.map((t) => type({ ...s, type: t }, indent)).join(' | ');
  switch (s.type) {
    case 'object':
      return s.properties ? object(s, indent) : s.additionalProperties?.type ? `Record<string, ${type(s.additionalProperties, indent)}>` : 'Record<string, unknown>';
    case 'array':
      return s.items ? `(${type(s.items, indent)})[]` : 'unknown[]';
    case 'integer':
    case 'number':
      return 'number';
    case 'boolean':
      return 'boolean';
    case 'null':
      return 'null';
    case 'string':
      return 'string';
  }
  return 'unknown';
}

function object(s, indent) {
  const inner = indent + '  ';
  const fields = Object.entries(s.properties).map(([name, field]) => {
    const comment = field.description ? `${inner}/** ${field.description} */\n` : '';
    return `${comment}${inner}${name}${s.required?.includes(name) ? '' : '?'}: ${type(field, inner)};`;
  });
  return `{\n${fields.join('\n')}\n${indent}}`;
}

const parts = [];
for (const [file, name] of Object.entries(names)) {
  const schema = JSON.parse(await readFile(new URL(`${file}.schema.json`, schemas), 'utf8'));
  parts.push(`/** ${schema.description ?? schema.title} */\nexport type ${name} = ${type(schema, '')};`);
}
const text = await readFile(target, 'utf8');
const [begin, end] = ['// --- types, written by types.mjs from docs/schema ---\n', '// --- end of types ---'];
const [head, rest] = text.split(begin);
const tail = rest.slice(rest.indexOf(end));
const next = `${head}${begin}\n${parts.join('\n\n')}\n\n${tail}`;
if (process.argv[2] === '--check') {
  if (next !== text) {
    console.error('the types in wakebus.ts are not what docs/schema says: node types.mjs');
    process.exit(1);
  }
} else await writeFile(target, next);
