import assert from 'node:assert/strict';
import { once } from 'node:events';
import { ExecError } from '@fly/sprites';
import { SpritesClient } from '@fly/sprites';
import { baseURL, check, collect, finish, fresh, info, output, sh, token, until } from './harness.mjs';

check('exec splits on spaces and runs', async (t) => {
  const s = await fresh(t);
  assert.deepEqual(await s.exec('echo hello  world'), { stdout: 'hello world\n', stderr: '', exitCode: 0 });
});

check('stdout and stderr stay apart', async (t) => {
  const s = await fresh(t);
  const r = await sh(s, 'echo out; echo err >&2');
  assert.equal(r.stdout, 'out\n');
  assert.equal(r.stderr, 'err\n');
});

for (const code of [1, 42, 128, 255]) {
  check(`exit code ${code} is an ExecError with it`, async (t) => {
    const s = await fresh(t);
    await assert.rejects(sh(s, `echo said; exit ${code}`), (e) => e instanceof ExecError && e.exitCode === code && e.stdout === 'said\n');
  });
}

check('a signal is 128 and its number', async (t) => {
  const s = await fresh(t);
  await assert.rejects(sh(s, 'kill -KILL $$'), (e) => e.exitCode === 137);
});

check('a missing program fails', async (t) => {
  const s = await fresh(t);
  await assert.rejects(s.execFile('no-such-program'), (e) => e.exitCode === 127);
});

check('env is passed on', async (t) => {
  const s = await fresh(t);
  assert.equal((await sh(s, 'echo "$A-$B"', { env: { A: 'x y', B: 'a=b' } })).stdout, 'x y-a=b\n');
});

check('cwd is the working directory', async (t) => {
  const s = await fresh(t);
  assert.equal((await s.exec('pwd', { cwd: '/tmp' })).stdout, '/tmp\n');
});

check('the default cwd is the home', async (t) => {
  const s = await fresh(t);
  assert.match((await s.exec('pwd')).stdout, /\/home\/sprite\n$/);
});

check('output of 5 MB arrives whole and in order', async (t) => {
  const s = await fresh(t);
  const r = await sh(s, 'seq 1 700000', { maxBuffer: 1 << 24 });
  const lines = r.stdout.trimEnd().split('\n');
  assert.equal(lines.length, 700000);
  assert.equal(lines.at(-1), '700000');
});

check('binary output is not changed', async (t) => {
  const s = await fresh(t);
  const r = await sh(s, `printf '\\000\\001\\002\\003\\377\\012'`, { encoding: 'buffer' });
  assert.deepEqual([...r.stdout], [0, 1, 2, 3, 255, 10]);
});

check('stdin is delivered and ends', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('cat');
  await once(cmd, 'spawn');
  const done = finish(cmd);
  cmd.stdin.write('first ');
  cmd.stdin.end('second');
  assert.deepEqual(await done, { out: 'first second', err: '', code: 0 });
});

check('1 MB of stdin comes back', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sha256sum');
  await once(cmd, 'spawn');
  const done = finish(cmd);
  for (let i = 0; i < 64; i++) cmd.stdin.write(Buffer.alloc(16384, i));
  cmd.stdin.end();
  const want = await crypto.subtle.digest('SHA-256', Buffer.concat(Array.from({ length: 64 }, (_, i) => Buffer.alloc(16384, i))));
  assert.equal((await done).out.split(' ')[0], Buffer.from(want).toString('hex'));
});

check('output streams while the command runs', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'echo a; read x; echo b']);
  await output(cmd, /a\n/);
  const done = finish(cmd);
  cmd.stdin.write('\n');
  assert.equal((await done).out, 'b\n');
});

check('kill over the socket ends it', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'echo up; sleep 1000']);
  await output(cmd, /up/);
  cmd.kill();
  assert.equal((await finish(cmd)).code, 143);
});

check('a signal reaches a handler', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'trap "echo caught; exit 5" USR1; echo up; while :; do sleep 0.05; done']);
  await output(cmd, /up/);
  const done = finish(cmd);
  cmd.signal('USR1');
  const r = await done;
  assert.equal(r.out, 'caught\n');
  assert.equal(r.code, 5);
});

check('a child that holds the pipe does not hold the exit', async (t) => {
  const s = await fresh(t);
  assert.equal((await sh(s, 'sleep 1000 & echo done')).stdout, 'done\n');
});

check('fifty commands at once all succeed', async (t) => {
  const s = await fresh(t);
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => s.exec(`echo ${i}`)));
  assert.deepEqual(all.map((r) => r.stdout), Array.from({ length: 50 }, (_, i) => `${i}\n`));
});

// This call of the SDK takes each piece that arrives for one frame, and says itself that it cannot tell two that came
// together: pauses keep them apart.
check('HTTP exec gives streams and code', async (t) => {
  const s = await fresh(t);
  assert.deepEqual(await s.execFileHTTP('sh', ['-c', 'echo out; sleep 0.2; echo err >&2; sleep 0.2']), { stdout: 'out\n', stderr: 'err\n', exitCode: 0 });
  await assert.rejects(s.execFileHTTP('sh', ['-c', 'exit 42']), (e) => e.exitCode === 42);
});

check('HTTP exec takes stdin', async (t) => {
  const s = await fresh(t);
  assert.equal((await s.execFileHTTP('sh', ['-c', 'cat; sleep 0.2'], { input: 'text' })).stdout, 'text');
});

check('control mode runs the same command', async (t) => {
  const s = await fresh(t);
  const other = new SpritesClient(token, { baseURL, controlMode: true }).sprite(s.name);
  const r = await other.execFile('sh', ['-c', 'echo out; echo err >&2']);
  assert.deepEqual(r, { stdout: 'out\n', stderr: 'err\n', exitCode: 0 });
  assert.equal(other.hasControlConnection(), true);
  // The Sprite must outlive the closing handshake: the SDK throws what breaks it where nobody can catch it.
  const closed = once(await other.getControlConnection(), 'close');
  other.closeControlConnection();
  await closed;
});

// Terminals

check('a terminal is one, with its size', async (t) => {
  const s = await fresh(t);
  const r = await finish(s.spawn('sh', ['-c', 'tty; stty size'], { tty: true, rows: 33, cols: 99 }));
  assert.match(r.out, /^\/dev\/pts\/\d+\r\n33 99\r\n$/);
  assert.equal(r.code, 0);
});

check('without one tty says so', async (t) => {
  const s = await fresh(t);
  await assert.rejects(s.exec('tty'), (e) => e.exitCode === 1 && /not a tty/.test(e.stdout));
});

check('resize reaches the terminal', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'stty size; read x; stty size'], { tty: true });
  await output(cmd, /24 80/);
  cmd.resize(101, 41);
  const done = finish(cmd);
  cmd.stdin.write('\n');
  assert.match((await done).out, /41 101/);
});

check('a failed terminal command is not reported as success', async (t) => {
  const s = await fresh(t);
  assert.equal((await finish(s.spawn('sh', ['-c', 'exit 3'], { tty: true }))).code, 1);
});

check('session_info has a text id that is the pid inside', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'echo pid=$$; read x'], { tty: true });
  const [i, match] = await Promise.all([info(cmd), output(cmd, /pid=(\d+)/)]);
  assert.equal(typeof i.session_id, 'string');
  assert.equal(i.session_id, match[1]);
  assert.equal(i.tty, true);
  cmd.stdin.write('\n');
  await once(cmd, 'exit');
});

check('a detached terminal lives on, is listed, and attach shows what it said', async (t) => {
  const s = await fresh(t);
  const cmd = s.createSession('sh', ['-c', 'echo before; read x; echo got-$x']);
  const [i] = await Promise.all([info(cmd), output(cmd, /before/)]);
  cmd.wsCmd.close();
  await once(cmd, 'exit');
  const [session] = await s.listSessions();
  assert.equal(session.id, i.session_id);
  assert.equal(session.tty, true);
  assert.ok(!Number.isNaN(session.created.getTime()));
  const back = s.attachSession(session.id);
  await output(back, /before/);
  const done = output(back, /got-it/);
  back.stdin.write('it\n');
  await done;
  await until('session gone', async () => (await s.listSessions()).length === 0);
});

check('a detached command without terminal replays both streams', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'echo out; echo err >&2; read x; exit 6'], { maxRunAfterDisconnect: '1m' });
  await output(cmd, /out/);
  cmd.wsCmd.close();
  await once(cmd, 'exit');
  const [session] = await s.listSessions();
  assert.equal(session.tty, false);
  const back = s.attachSession(session.id);
  const done = finish(back);
  await once(back, 'spawn');
  back.stdin.write('\n');
  assert.deepEqual(await done, { out: 'out\n', err: 'err\n', code: 6 });
});

check('attach to a session that is no more fails', async (t) => {
  const s = await fresh(t);
  const cmd = s.attachSession('99999');
  const error = await new Promise((resolve) => cmd.on('error', resolve));
  assert.match(error.message, /WebSocket/);
});

check('killSession streams the end', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'echo up; sleep 1000']);
  await output(cmd, /up/);
  const gone = once(cmd, 'exit');
  const [session] = await s.listSessions();
  const events = await collect(await s.killSession(session.id, 'SIGTERM', '5s'));
  assert.deepEqual(events.map((e) => e.type), ['signal', 'exited', 'complete']);
  assert.equal(events.at(-1).exitCode, 143);
  assert.deepEqual(await gone, [143]);
  await assert.rejects(s.killSession(session.id), (e) => e.statusCode === 410);
});

check('killSession becomes a KILL when TERM is ignored', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('sh', ['-c', 'trap "" TERM; echo up; while :; do sleep 0.05; done']);
  await output(cmd, /up/);
  const [session] = await s.listSessions();
  const events = await collect(await s.killSession(session.id, 'SIGTERM', '100ms'));
  assert.deepEqual(events.map((e) => e.type), ['signal', 'timeout', 'killed', 'complete']);
});
