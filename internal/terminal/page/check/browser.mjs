// Drives the page in a real Chromium. The Go test that starts it answers the lines it prints: cut, mend, restart, revoke.
import { chromium } from 'playwright-core';
import { createInterface } from 'node:readline';
import { mkdir } from 'node:fs/promises';
import assert from 'node:assert/strict';

const [url, shots] = process.argv.slice(2);
await mkdir(shots, { recursive: true });
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function ask(command) {
  console.log(command);
  const { value } = await answers.next();
  assert.equal(value, 'ok', command);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const context = await browser.newContext({ viewport: { width: 900, height: 560 }, colorScheme: 'dark', permissions: ['clipboard-read', 'clipboard-write'] });
context.setDefaultTimeout(30000);
let page;
const errors = [];

async function open(ctx = context, query = 'page=check') {
  page = await ctx.newPage();
  page.on('pageerror', (e) => errors.push(String(e)));
  page.on('console', (m) => { if (m.type() === 'error' && !/WebSocket/.test(m.text())) errors.push(m.text()); });
  await page.goto(`${url}/?${query}`);
  await state('live');
}
const state = (kind) => page.waitForSelector(`#state[data-kind=${kind}]`);
const screen = () => page.evaluate(() => {
  const b = wakebus.term.buffer.active;
  const lines = [];
  for (let i = 0; i < b.length; i++) lines.push(b.getLine(i).translateToString(true));
  return lines.join('\n');
});
async function sees(text) {
  await page.waitForFunction((t) => {
    const b = wakebus.term.buffer.active;
    let all = '';
    for (let i = 0; i < b.length; i++) all += b.getLine(i).translateToString(true) + '\n';
    return all.includes(t);
  }, text);
}
const count = async (text) => (await screen()).split(text).length - 1;
async function run(command) { await page.keyboard.type(command); await page.keyboard.press('Enter'); }
const shot = (name) => page.screenshot({ path: `${shots}/${name}.png` });
async function step(name, f) { await f(); console.error(`ok ${name}`); }

await step('opens and types', async () => {
  await open();
  await run("PS1='$ '; export LC_ALL=C.UTF-8; echo hello-$((6*7))");
  await sees('hello-42');
  await shot('1-typed-dark');
});

await step('resizes', async () => {
  await page.setViewportSize({ width: 620, height: 420 });
  await page.waitForFunction(() => wakebus.term.cols < 90);
  const { rows, cols } = await page.evaluate(() => ({ rows: wakebus.term.rows, cols: wakebus.term.cols }));
  await run('stty size');
  await sees(`${rows} ${cols}`);
  await page.setViewportSize({ width: 900, height: 560 });
});

await step('measures emoji and wide characters', async () => {
  await run("clear; printf '\\360\\237\\221\\251\\342\\200\\215\\360\\237\\221\\247|\\346\\274\\242|\\n'");
  await sees('漢|');
  const at = await page.evaluate(() => {
    const line = wakebus.term.buffer.active.getLine(1) ?? wakebus.term.buffer.active.getLine(0);
    for (let y = 0; y < 4; y++) {
      const l = wakebus.term.buffer.active.getLine(y);
      for (let x = 0; l && x < 10; x++) if (l.getCell(x).getChars() === '|' && l.getCell(x - 1 >= 0 ? x - 1 : 0).getWidth() === 0) return x;
    }
    return [line?.translateToString(true)];
  });
  assert.equal(at, 2, 'a family of two is two cells wide');
});

await step('copies from the shell (OSC 52) and never lets it read', async () => {
  await run("printf '\\033]52;c;Y29waWVk\\007'; printf '\\033]52;c;?\\007'; echo; echo clip-$((1+1))");
  await sees('clip-2');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'copied');
  assert.equal(await count('Y29waWVk\u0007'), 0);
});

await step('pastes more than one frame', async () => {
  await run('stty -echo; echo rea""dy; wc -c');
  await sees('ready'); // and so the shell's own paste mode is off
  await page.evaluate(() => wakebus.term.paste(('x'.repeat(99) + '\n').repeat(300)));
  await page.keyboard.press('Control+d');
  await sees('30000');
  await run('stty echo');
});

await step('survives a cut network and types what was typed meanwhile once', async () => {
  await run('clear');
  await ask('cut');
  await state('reconnecting');
  await run('echo typed-$((40+2))-off');
  await shot('2-reconnecting');
  await ask('mend');
  await state('live');
  await sees('typed-42-off');
  assert.equal(await count('typed-42-off'), 1);
});

await step('searches', async () => {
  await page.keyboard.press('Control+Shift+F');
  await page.keyboard.type('typed-42');
  assert.equal(await page.evaluate(() => wakebus.term.getSelection()), 'typed-42');
  await page.keyboard.press('Escape');
});

await step('leaves by Shift+Tab', async () => {
  await page.keyboard.press('Shift+Tab');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
  await page.evaluate(() => wakebus.focus());
});

await step('restores the screen of vim in a new browser tab', async () => {
  await run('vim -u NONE -N -c "set ruler"');
  await sees('~');
  await page.keyboard.type('iwritten in vim');
  await page.keyboard.press('Escape');
  await sees('written in vim');
  await page.close();
  await open();
  await sees('written in vim');
  assert.equal(await page.evaluate(() => wakebus.term.buffer.active.type), 'alternate');
  await shot('3-vim-restored');
  await page.keyboard.type(':q!');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => wakebus.term.buffer.active.type === 'normal');
});

await step('keeps the shell over a gateway restart', async () => {
  await run('kept=yes; clear');
  await ask('restart');
  await state('live');
  await run('echo kept-$kept');
  await sees('kept-yes');
});

await step('interrupts a flood', async () => {
  for (const round of [1, 2]) {
    await run('yes flood');
    await page.waitForFunction((n) => wakebus.connection.offset > n, round * (4 << 20)); // far beyond every buffer on the way
    const begun = Date.now();
    await page.keyboard.press('Control+c');
    await run(`clear; echo after-$((1+2))-${round}`);
    await sees(`after-3-${round}`);
    console.error(`   ${Date.now() - begun} ms from the interrupt to the next command's output`);
  }
});

await step('works on a phone, light, by its row of keys', async () => {
  const first = page;
  const phone = await browser.newContext({ viewport: { width: 390, height: 700 }, hasTouch: true, isMobile: true, colorScheme: 'light' });
  phone.setDefaultTimeout(30000);
  await open(phone);
  await run('sleep 1000');
  await page.tap('#ctrl');
  await page.keyboard.type('c');
  await run('echo phone-$((2+2))');
  await sees('phone-4');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing is wider than the phone');
  await shot('4-phone-light');
  await phone.close();
  page = first;
});

await step('says why it ended', async () => {
  await ask('revoke');
  await page.waitForSelector('#ended:not([hidden])');
  assert.match(await page.textContent('#why'), /revoked|switched off/i);
  await shot('5-revoked');
});

assert.deepEqual(errors, []);
await browser.close();
console.error('all steps held');
process.exit(0);
