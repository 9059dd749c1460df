import assert from 'node:assert/strict';
import { check, fresh, sh, work } from './harness.mjs';

const code = (c) => (e) => e.code === c;

check('a written file is read back, by the guest too', async (t) => {
  const s = await fresh(t);
  const fs = s.filesystem('/workspace');
  await fs.writeFile('deep/down/a.txt', 'text');
  assert.equal(await fs.readFile('deep/down/a.txt', 'utf8'), 'text');
  assert.equal((await work(s, 'cat deep/down/a.txt')).stdout, 'text');
});

check('bytes are not changed', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  const data = Buffer.from(Array.from({ length: 70000 }, (_, i) => i % 256));
  await fs.writeFile('b', data);
  assert.ok((await fs.readFile('b')).equals(data));
});

check('mode is set, on an existing file as well', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('f', 'a', { mode: 0o600 });
  assert.equal((await fs.stat('f')).mode, 0o600);
  await fs.writeFile('f', 'b', { mode: 0o640 });
  assert.equal((await fs.stat('f')).mode, 0o640);
  await fs.chmod('f', 0o755);
  assert.equal((await fs.stat('f')).mode, 0o755);
});

check('an empty file is a file', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('e', '');
  assert.equal(await fs.readFile('e', 'utf8'), '');
  const st = await fs.stat('e');
  assert.ok(st.isFile() && !st.isDirectory() && st.size === 0);
});

check('append adds', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.appendFile('log', 'one ');
  await fs.appendFile('log', 'two');
  assert.equal(await fs.readFile('log', 'utf8'), 'one two');
});

check('JSON goes through', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeJSON('x.json', { a: [1, 2] });
  assert.deepEqual(await fs.readJSON('x.json'), { a: [1, 2] });
});

check('a directory is made empty and listed', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.mkdir('d/e', { recursive: true });
  assert.deepEqual(await fs.readdir('d/e'), []);
  await fs.writeFile('d/f', 'x');
  const entries = await fs.readdir('d', { withFileTypes: true });
  assert.deepEqual(entries.map((e) => [e.name, e.isDirectory()]), [['e', true], ['f', false]]);
});

check('a listing can go deep and by pattern', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('a/one.txt', '');
  await fs.writeFile('a/b/two.txt', '');
  await fs.writeFile('a/b/three.md', '');
  assert.deepEqual((await fs.readdir('a', { recursive: true, pattern: '*.txt' })).sort(), ['one.txt', 'two.txt']);
});

check('a link is a link', async (t) => {
  const s = await fresh(t);
  await work(s, 'touch target && ln -s target link');
  const entries = await s.filesystem('/workspace').readdir('/workspace', { withFileTypes: true });
  assert.ok(entries.find((e) => e.name === 'link').isSymbolicLink());
});

check('rename moves', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('old', 'x');
  await fs.rename('old', 'new');
  assert.equal(await fs.exists('old'), false);
  assert.equal(await fs.readFile('new', 'utf8'), 'x');
});

check('copy copies files and trees', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('t/a', '1');
  await fs.writeFile('t/b/c', '2');
  await fs.copyFile('t/a', 'single');
  await fs.copyFile('t', 'u', { recursive: true });
  assert.equal(await fs.readFile('single', 'utf8'), '1');
  assert.equal(await fs.readFile('u/b/c', 'utf8'), '2');
  await assert.rejects(fs.copyFile('t', 'v'), code('EISDIR'));
});

check('rm removes files and, asked for, trees', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('d/f', 'x');
  await assert.rejects(fs.rm('d'), code('ENOTEMPTY'));
  await fs.rm('d', { recursive: true });
  assert.equal(await fs.exists('d'), false);
  await fs.rm('d', { force: true });
  await assert.rejects(fs.rm('d'), code('ENOENT'));
});

check('what is missing is ENOENT', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await assert.rejects(fs.readFile('none'), code('ENOENT'));
  await assert.rejects(fs.readdir('none'), code('ENOENT'));
  await assert.rejects(fs.stat('none'), code('ENOENT'));
  await assert.rejects(fs.rename('none', 'other'), code('ENOENT'));
  await assert.rejects(fs.chmod('none', 0o600), code('ENOENT'));
});

check('a directory is not a file, nor the other way', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('d/f', 'x');
  await assert.rejects(fs.readFile('d'), code('EISDIR'));
  await assert.rejects(fs.writeFile('d', 'x'), code('EISDIR'));
  await assert.rejects(fs.writeFile('d/f/g', 'x'), code('ENOTDIR'));
});

check('nothing is written outside', async (t) => {
  const fs = (await fresh(t)).filesystem('/');
  await assert.rejects(fs.writeFile('/usr/made-here', 'x'), (e) => ['EACCES', 'EPERM', 'UNKNOWN'].includes(e.code));
});

check('chown to its own user is done, to another refused', async (t) => {
  const fs = (await fresh(t)).filesystem('/workspace');
  await fs.writeFile('f', 'x');
  await fs.chown('f', { uid: 'sprite', gid: 'sprite' });
  await assert.rejects(fs.chown('f', { uid: 0 }), code('EPERM'));
});

check('watch tells of a new file', async (t) => {
  const s = await fresh(t);
  const fs = s.filesystem('/workspace');
  const watcher = await fs.watch('/workspace', { recursive: true });
  t.after(() => watcher.close());
  assert.equal((await watcher.next()).type, 'subscribed');
  await work(s, 'touch new');
  const event = await watcher.next();
  assert.deepEqual([event.type, event.event, event.path], ['event', 'create', '/workspace/new']);
});

check('a scratch file is gone after a cold boot, the workspace is not', async (t) => {
  const s = await fresh(t);
  await work(s, 'echo x > kept');
  await s.restart();
  assert.equal(await s.filesystem('/workspace').readFile('kept', 'utf8'), 'x\n');
});
