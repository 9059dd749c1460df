import assert from 'node:assert/strict';
import { SpritesClient, APIError } from '@fly/sprites';
import { admin, baseURL, check, client, fresh, sh, until, work } from './harness.mjs';

check('create gives the whole object back', async (t) => {
  const s = await fresh(t, {
    config: { ramMB: 512, cpus: 1, storageGB: 5 }, labels: ['wakebus', 'check'], environment: { GREETING: 'hello' },
    urlSettings: { auth: 'sprite', privateAccess: 'admins' }, waitForCapacity: true,
  });
  assert.match(s.id, /^sprite-[0-9a-f-]{36}$/);
  assert.equal(s.status, 'cold');
  assert.deepEqual(s.config, { ramMB: 512, cpus: 1, region: undefined, storageGB: 5 });
  assert.deepEqual(s.labels, ['wakebus', 'check']);
  assert.deepEqual(s.urlSettings, { auth: 'sprite', privateAccess: 'admins' });
  assert.ok(s.organizationName);
});

check('creation times are times', async (t) => {
  const s = await fresh(t);
  assert.ok(Math.abs(Date.now() - s.createdAt.getTime()) < 60_000);
  assert.ok(!Number.isNaN(s.updatedAt.getTime()));
});

check('a name that is taken is a conflict', async (t) => {
  const s = await fresh(t);
  await assert.rejects(client.createSprite(s.name), (e) => e instanceof APIError && e.statusCode === 409);
});

check('a bad name is refused', async () => {
  for (const name of ['', 'Upper', '-dash', 'under_score', 'x'.repeat(56)]) {
    await assert.rejects(client.createSprite(name), (e) => e.statusCode === 400);
  }
});

check('a name of 55 characters is not', async (t) => {
  const name = `n${process.pid}`.padEnd(55, 'x');
  t.after(() => client.deleteSprite(name));
  assert.equal((await client.createSprite(name)).name, name);
});

check('get finds by name', async (t) => {
  const s = await fresh(t);
  assert.equal((await client.getSprite(s.name)).id, s.id);
});

check('get of an unknown name is 404', async () => {
  await assert.rejects(client.getSprite('no-such-sprite'), (e) => e.statusCode === 404);
});

check('a wrong token is 401', async () => {
  const other = new SpritesClient('wrong', { baseURL });
  await assert.rejects(other.listSprites(), (e) => e.statusCode === 401);
});

check('list filters by prefix', async (t) => {
  const s = await fresh(t);
  const { sprites } = await client.listSprites({ prefix: s.name });
  assert.deepEqual(sprites.map((x) => x.name), [s.name]);
});

check('list pages to the end and no further', async (t) => {
  const prefix = `page-${process.pid}-`;
  const names = ['a', 'b', 'c', 'd', 'e'].map((x) => prefix + x);
  await Promise.all(names.map((n) => client.createSprite(n)));
  t.after(() => Promise.all(names.map((n) => client.deleteSprite(n))));
  const first = await client.listSprites({ prefix, maxResults: 2 });
  assert.equal(first.hasMore, true);
  assert.equal(first.sprites.length, 2);
  const second = await client.listSprites({ prefix, maxResults: 2, continuationToken: first.nextContinuationToken });
  const third = await client.listSprites({ prefix, maxResults: 2, continuationToken: second.nextContinuationToken });
  assert.equal(third.hasMore, false);
  const all = [...first.sprites, ...second.sprites, ...third.sprites].map((x) => x.name);
  assert.deepEqual(all, names);
});

check('listAll follows the pages', async (t) => {
  const prefix = `all-${process.pid}-`;
  const names = Array.from({ length: 53 }, (_, i) => prefix + String(i).padStart(2, '0'));
  await Promise.all(names.map((n) => client.createSprite(n)));
  t.after(() => Promise.all(names.map((n) => client.deleteSprite(n))));
  assert.equal((await client.listAllSprites(prefix)).length, 53);
});

check('list counts the organisation', async (t) => {
  await fresh(t);
  const l = await client.listSprites({ bulkLoad: true });
  assert.ok(l.cold >= 1);
  assert.ok(l.organizationName);
});

check('update changes labels and URL settings alone', async (t) => {
  const s = await fresh(t, { labels: ['one'] });
  const labelled = await s.update({ labels: ['two'] });
  assert.deepEqual(labelled.labels, ['two']);
  await s.updateURLSettings({ auth: 'public' });
  const again = await client.getSprite(s.name);
  assert.equal(again.urlSettings.auth, 'public');
  assert.deepEqual(again.labels, ['two']);
  assert.deepEqual((await s.update({ labels: [] })).labels, []);
});

check('check says that it is healthy', async (t) => {
  const s = await fresh(t);
  const c = await s.check();
  assert.equal(c.spriteId, s.id);
  assert.ok(!Number.isNaN(c.checkedAt.getTime()));
});

check('upgrade and restart answer', async (t) => {
  const s = await fresh(t);
  await s.upgrade();
  assert.equal((await s.restart()).spriteName, s.name);
});

check('reading the control plane wakes nothing', async (t) => {
  const s = await fresh(t);
  await client.getSprite(s.name);
  await s.check();
  await client.listSprites({ prefix: s.name });
  await s.getNetworkPolicy();
  assert.equal((await client.getSprite(s.name)).status, 'cold');
});

check('an exec wakes, sleep makes warm, and files are kept', async (t) => {
  const s = await fresh(t);
  await work(s, 'echo kept > f');
  assert.equal((await client.getSprite(s.name)).status, 'running');
  await admin('POST', `sprites/${s.name}/sleep`);
  const warm = await client.getSprite(s.name);
  assert.equal(warm.status, 'warm');
  assert.ok(warm.lastRunningAt && warm.lastWarmingAt);
  assert.equal((await work(s, 'cat f')).stdout, 'kept\n');
});

check('watch tells of changes as they happen', async (t) => {
  const s = await fresh(t);
  const stream = await client.watchSprites({ prefix: s.name });
  t.after(() => stream.close());
  const first = await stream.next();
  assert.equal(first.name, s.name);
  assert.equal(first.status, 'cold');
  await s.exec('true');
  let event = await stream.next();
  while (event.status !== 'running') event = await stream.next();
  assert.ok(event.organization.running >= 1);
});

check('delete frees the name', async () => {
  const name = `gone-${process.pid}`;
  const first = await client.createSprite(name);
  await first.delete();
  await assert.rejects(client.getSprite(name), (e) => e.statusCode === 404);
  const second = await client.createSprite(name);
  assert.notEqual(second.id, first.id);
  await second.destroy();
});

check('a rate limit carries its hint', async (t) => {
  const name = `limited-${process.pid}`;
  t.after(() => admin('DELETE', 'faults'));
  await admin('POST', 'faults', {
    route: 'sprite.create', sprite: name, do: 'status', status: 429, times: 1,
    headers: { 'Retry-After': '7', 'Content-Type': 'application/json' },
    body: JSON.stringify({ error: 'sprite_creation_rate_limited', limit: 10, window_seconds: 60, retry_after_seconds: 6 }),
  });
  await assert.rejects(client.createSprite(name), (e) => e.isCreationRateLimited() && e.getRetryAfterSeconds() === 6);
  await until('call in the log', async () => (await (await admin('GET', 'calls')).json()).some((c) => c.sprite === name && c.fault === 'status'));
});

check('network policy is kept as given', async (t) => {
  const s = await fresh(t);
  assert.deepEqual(await s.getNetworkPolicy(), { rules: [] });
  const policy = { rules: [{ domain: '*.example.org', action: 'allow' }, { domain: '*', action: 'deny' }] };
  await s.updateNetworkPolicy(policy);
  assert.deepEqual(await s.getNetworkPolicy(), policy);
  await assert.rejects(s.updateNetworkPolicy({ rules: [{ domain: 'x', action: 'perhaps' }] }), /Invalid policy/);
});

check('privileges and resources are kept and deleted', async (t) => {
  const s = await fresh(t);
  assert.deepEqual(await s.getPrivilegesPolicy(), {});
  await s.updatePrivilegesPolicy({ profile: 'minimal' });
  assert.equal((await s.getPrivilegesPolicy()).profile, 'minimal');
  await s.deletePrivilegesPolicy();
  assert.deepEqual(await s.getPrivilegesPolicy(), {});
  await s.updateResourcesPolicy({ memory: { limitMB: 2048, autoscale: false } });
  assert.equal((await s.getResourcesPolicy()).memory.limitMB, 2048);
  await s.deleteResourcesPolicy();
  assert.equal((await s.getResourcesPolicy()).memory, undefined);
});
