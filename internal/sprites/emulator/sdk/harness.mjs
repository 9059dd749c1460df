// What the checks share: a client, Sprites of their own, and a way to stop at
// the first red check, which is all that a mutation has to cause.
import { test } from 'node:test';
import { once } from 'node:events';
import { SpritesClient } from '@fly/sprites';

export const baseURL = process.env.EMULATOR_URL;
export const token = process.env.EMULATOR_TOKEN;
const bail = process.env.EMULATOR_BAIL === '1';
const limit = bail ? 5000 : 30000;

export const client = new SpritesClient(token, { baseURL });

export function check(name, body) {
  test(name, { timeout: limit + 1000 }, async (t) => {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no result within ${limit} ms`)), limit);
    });
    try {
      await Promise.race([body(t), late]);
    } catch (error) {
      if (bail) {
        console.error(`RED ${name}: ${error.message.split('\n')[0]}`);
        process.exit(1);
      }
      throw error;
    } finally {
      clearTimeout(timer);
    }
  });
}

let made = 0;
/** A Sprite of this check's own, gone when the check is over. */
export async function fresh(t, options) {
  const name = `check-${process.pid}-${++made}`;
  const sprite = await client.createSprite(name, options);
  t.after(() => client.deleteSprite(name).catch(() => {}));
  return sprite;
}

export const sh = (sprite, script, options) => sprite.execFile('sh', ['-c', script], options);

/** The same in /workspace. Scripts name their files relative to it, so that they
 * also hold where paths inside of a script cannot be mapped. */
export const work = (sprite, script) => sh(sprite, script, { cwd: '/workspace' });

/** The first output of a command that satisfies the pattern; the command goes on. */
export function output(cmd, pattern) {
  return new Promise((resolve, reject) => {
    let seen = '';
    const take = (chunk) => {
      seen += chunk;
      const match = seen.match(pattern);
      if (match) {
        cmd.stdout.off('data', take);
        resolve(match);
      }
    };
    cmd.stdout.on('data', take);
    cmd.on('error', reject);
    cmd.on('exit', (code) => reject(new Error(`exited ${code} before ${pattern}: ${JSON.stringify(seen)}`)));
  });
}

/** All output and the code of a command. */
export async function finish(cmd) {
  let out = '';
  let err = '';
  cmd.stdout.on('data', (chunk) => { out += chunk; });
  cmd.stderr.on('data', (chunk) => { err += chunk; });
  const [code] = await once(cmd, 'exit');
  cmd.on('error', () => {}); // its Sprite may be deleted while the socket still closes
  return { out, err, code };
}

/** The session_info of a command with a terminal. */
export const info = (cmd) => new Promise((resolve, reject) => {
  cmd.on('message', (m) => { if (m.type === 'session_info') resolve(m); });
  cmd.on('error', reject);
});

export async function collect(stream) {
  const all = [];
  for await (const event of stream) all.push(event);
  return all;
}

/** Calls the emulator's own admin routes. */
export const admin = (method, path, body) => fetch(`${baseURL}/_emulator/${path}`, {
  method, headers: { Authorization: `Bearer ${token}` }, body: body && JSON.stringify(body),
});

/** Asks again until the answer is truthy. */
export async function until(what, ask) {
  for (let i = 0; i < 400; i++) {
    const answer = await ask();
    if (answer) return answer;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`never: ${what}`);
}
