import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { once } from 'node:events';
import { check, collect, fresh, output, sh, until, work } from './harness.mjs';

const server = (port) => ['-c', `
import socketserver
class H(socketserver.BaseRequestHandler):
    def handle(self):
        while True:
            d = self.request.recv(65536)
            if not d: return
            self.request.sendall(d.upper())
socketserver.ThreadingTCPServer.allow_reuse_address = True
s = socketserver.ThreadingTCPServer(('127.0.0.1', ${port}), H)
print('listening', s.server_address[1], flush=True)
s.serve_forever()
`];

check('a checkpoint streams, is listed, and restores the files', async (t) => {
  const s = await fresh(t);
  await work(s, 'echo one > f; mkdir d; chmod 700 d');
  const events = await collect(await s.createCheckpoint('first'));
  assert.equal(events.at(-1).type, 'complete');
  assert.match(events.at(-1).data, /v1/);
  await work(s, 'echo two > f; rm -r d; touch extra');
  await collect(await s.createCheckpoint());
  const list = await s.listCheckpoints();
  assert.deepEqual(list.map((c) => c.id), ['v1', 'v2']);
  assert.equal(list[0].comment, 'first');
  assert.ok(!Number.isNaN(list[0].createTime.getTime()));
  const restored = await collect(await s.restoreCheckpoint('v1'));
  assert.equal(restored.at(-1).type, 'complete');
  assert.equal((await work(s, 'cat f; ls; stat -c %a d')).stdout, 'one\nd\nf\n700\n');
});

check('a checkpoint can be looked at, a missing one not', async (t) => {
  const s = await fresh(t);
  await collect(await s.createCheckpoint('c'));
  assert.equal((await s.getCheckpoint('v1')).comment, 'c');
  await assert.rejects(s.getCheckpoint('v9'), /not found/);
  await assert.rejects(s.restoreCheckpoint('v9'), /404/);
});

check('restore ends sessions', async (t) => {
  const s = await fresh(t);
  await collect(await s.createCheckpoint());
  const cmd = s.spawn('sh', ['-c', 'echo up; sleep 1000']);
  await output(cmd, /up/);
  cmd.on('error', () => {});
  const gone = new Promise((resolve) => cmd.once('exit', resolve));
  await collect(await s.restoreCheckpoint('v1'));
  await gone;
  assert.deepEqual(await s.listSessions(), []);
});

check('a service starts, logs, stops and is deleted', async (t) => {
  const s = await fresh(t);
  const events = await collect(await s.createService('web', {
    cmd: 'sh', args: ['-c', 'echo serving $X; echo oops >&2; sleep 1000'], env: { X: 'y' },
  }, '300ms'));
  assert.deepEqual(events.map((e) => e.type).sort(), ['complete', 'started', 'stderr', 'stdout']);
  assert.equal(events.find((e) => e.type === 'stdout').data, 'serving y\n');
  assert.ok(events.at(-1).logFiles.combined);
  const running = await s.getService('web');
  assert.equal(running.state.status, 'running');
  assert.ok(running.state.pid > 0);
  assert.deepEqual((await s.listServices()).map((x) => x.name), ['web']);
  const logs = await collect(await s.getServiceLogs('web', { lines: 5 }));
  assert.equal(logs.filter((e) => e.type === 'stdout')[0].data, 'serving y\n');
  const stopped = await collect(await s.stopService('web', '5s'));
  assert.deepEqual(stopped.map((e) => e.type), ['stopping', 'stopped', 'complete']);
  const after = await s.getService('web');
  assert.equal(after.state.status, 'failed'); // what the live service says of a stopped one
  assert.match(after.state.error, /143/);
  await assert.rejects(s.stopService('web'), /not running/i);
  await s.deleteService('web');
  await assert.rejects(s.getService('web'), /not found/i);
});

check('a service is started again and signalled', async (t) => {
  const s = await fresh(t);
  const cfg = { cmd: 'sh', args: ['-c', 'trap "echo hup" HUP; echo up; while :; do sleep 0.05; done'] };
  await collect(await s.createService('svc', cfg, '100ms'));
  const before = (await s.getService('svc')).state.pid;
  await s.signalService('svc', 'HUP');
  await until('hup in the log', async () => (await collect(await s.getServiceLogs('svc'))).some((e) => e.data === 'hup\n'));
  await collect(await s.restartService('svc', '100ms'));
  const after = (await s.getService('svc')).state;
  assert.equal(after.status, 'running');
  assert.notEqual(after.pid, before);
  await assert.rejects(s.signalService('none', 'HUP'), /not found/i);
  await assert.rejects(s.signalService('svc', 'NOPE'), /Invalid signal/);
});

check('services come back after a cold boot, needs first', async (t) => {
  const s = await fresh(t);
  await collect(await s.createService('b', { cmd: 'sleep', args: ['1000'] }, '50ms'));
  await collect(await s.createService('a', { cmd: 'sleep', args: ['1000'], needs: ['b'] }, '50ms'));
  await s.restart();
  await until('both run', async () => (await s.listServices()).every((x) => x.state.status === 'running'));
});

check('a server of one exec answers the next, and the proxy', async (t) => {
  const s = await fresh(t);
  const cmd = s.spawn('python3', server(0));
  const [, port] = await output(cmd, /listening (\d+)/);
  t.after(() => cmd.kill('KILL'));
  const inside = await s.execFile('python3', ['-c', `import socket; c=socket.create_connection(('127.0.0.1',${port})); c.sendall(b'in'); print(c.recv(9).decode())`]);
  assert.equal(inside.stdout, 'IN\n');
  const free = createServer().listen(0, 'localhost');
  await once(free, 'listening');
  const local = free.address().port;
  free.close();
  await once(free, 'close');
  const proxy = await s.proxyPort(local, Number(port));
  t.after(() => proxy.close());
  const socket = connect(local, 'localhost');
  socket.write('hello');
  const [data] = await once(socket, 'data');
  assert.equal(String(data), 'HELLO');
  socket.end();
});

check('the port watch lists and tells', async (t) => {
  const s = await fresh(t);
  await s.exec('true');
  const watcher = await s.watchPorts();
  t.after(() => watcher.close());
  assert.deepEqual((await watcher.next()).ports, []);
  const cmd = s.spawn('python3', server(0));
  const [, port] = await output(cmd, /listening (\d+)/);
  const opened = await watcher.next();
  assert.deepEqual([opened.type, opened.port, opened.address], ['port_opened', Number(port), '127.0.0.1']);
  cmd.kill('KILL');
  assert.equal((await watcher.next()).type, 'port_closed');
});
