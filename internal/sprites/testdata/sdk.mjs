// Times the official SDK (@fly/sprites) for the benchmarks: sdk.mjs SDK-FOLDER KIND COUNT.
// Prints the nanoseconds that COUNT runs took.
import { pathToFileURL } from 'node:url';

const [sdk, kind, count] = process.argv.slice(2);
const { SpritesClient } = await import(pathToFileURL(`${sdk}/dist/index.js`));
const box = new SpritesClient(process.env.EMULATOR_TOKEN, { baseURL: process.env.EMULATOR_URL }).sprite('box');

const runs = {
  true: () => run('true', []),
  stdout: async () => {
    const bytes = await run('head', ['-c', String(256 << 20), '/dev/zero']);
    if (bytes !== 256 << 20) throw new Error(`${bytes} bytes`);
  },
};

function run(name, args) {
  return new Promise((resolve, reject) => {
    const cmd = box.spawn(name, args);
    let bytes = 0;
    cmd.stdout.on('data', (chunk) => { bytes += chunk.length; });
    cmd.on('error', reject);
    cmd.on('exit', (code) => (code === 0 ? setImmediate(() => resolve(bytes)) : reject(new Error(`exit ${code}`))));
  });
}

await runs.true(); // warm
const began = process.hrtime.bigint();
for (let i = 0; i < Number(count); i++) await runs[kind]();
console.log(String(process.hrtime.bigint() - began));
process.exit(0);
