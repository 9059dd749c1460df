// Drives the page in a real Chromium. The Go test that starts it answers the lines it prints: cut, mend, restart, revoke.
import { chromium } from 'playwright-core';
import { createInterface } from 'node:readline';
import { mkdir, readFile, readdir } from 'node:fs/promises';
import assert from 'node:assert/strict';

const [url, shots, recordings] = process.argv.slice(2);
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

await step('copies a selection and pastes it by the keyboard', async () => {
  await run("clear; echo word-$((3*3))");
  await sees('word-9');
  await page.evaluate(() => {
    const b = wakebus.term.buffer.active;
    for (let y = 0; y < b.length; y++) if (b.getLine(y).translateToString(true) === 'word-9') wakebus.term.select(0, y, 6);
  });
  await page.keyboard.press('Control+Shift+C');
  await page.waitForFunction(async () => await navigator.clipboard.readText() === 'word-9');
  await page.keyboard.type('echo pasted-');
  await page.keyboard.press('Control+Shift+V');
  await sees('echo pasted-word-9'); // the clipboard answers when it likes
  await page.keyboard.press('Enter');
  await sees('\npasted-word-9');
});

await step('draws without WebGL, and wide characters in a full-screen program', async () => {
  assert.equal(await page.evaluate(() => [...document.querySelectorAll('canvas')].some((c) => c.getContext('webgl2') ?? c.getContext('webgl'))), false);
  await run("printf 'a\\360\\237\\230\\200b\\346\\274\\242c\\n' > wide; vim -u NONE -N -c 'set encoding=utf-8' wide");
  await page.waitForFunction(() => wakebus.term.buffer.active.type === 'alternate');
  await sees('b漢c');
  await page.keyboard.type('$'); // vim puts the cursor on c, where vim believes it stands
  await page.waitForFunction(() => {
    const b = wakebus.term.buffer.active;
    const cell = b.getLine(b.cursorY).getCell(b.cursorX);
    return b.cursorX === 6 && cell.getChars() === 'c';
  });
  await shot('6-wide-in-vim');
  await page.keyboard.type(':q!');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => wakebus.term.buffer.active.type === 'normal');
});

await step('speaks to a screen reader', async () => {
  await page.check('#reader');
  await run('clear; echo spoken-$((5+5))');
  await page.waitForFunction(() => document.querySelector('.xterm-accessibility')?.textContent.includes('spoken-10'));
  assert.equal(await page.getAttribute('#state', 'role'), 'status');
  await page.uncheck('#reader');
  await page.evaluate(() => wakebus.focus());
});

await step('follows a change from dark to light', async () => {
  await page.emulateMedia({ colorScheme: 'light' });
  await page.waitForFunction(() => wakebus.term.options.theme.background === '#ffffff');
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.waitForFunction(() => wakebus.term.options.theme.background !== '#ffffff');
});

await step('comes back at once when a tab that slept is shown again', async () => {
  await ask('cut');
  await state('reconnecting');
  const visible = (v) => page.evaluate((v) => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => v });
    document.dispatchEvent(new Event('visibilitychange'));
  }, v);
  await visible('hidden');
  await page.evaluate(() => { clearTimeout(wakebus.connection.timer); }); // a sleeping tab's timers do not run
  await ask('mend');
  await visible('visible');
  await state('live');
  await run('clear; echo awake-$((7*7))');
  await sees('awake-49');
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
  // Far more than the gateway keeps, so that the beginning of vim's screen is lost.
  const before = await page.evaluate(() => wakebus.connection.offset);
  await page.keyboard.type(':for i in range(6000) | redraw! | endfor');
  await page.keyboard.press('Enter');
  await page.waitForFunction((n) => wakebus.connection.offset > n + (300 << 10), before);
  await page.keyboard.type(':set ruler');
  await page.keyboard.press('Enter');
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
  assert.equal(await page.getAttribute('#ctrl', 'aria-pressed'), 'true');
  await page.keyboard.type('c');
  assert.equal(await page.getAttribute('#ctrl', 'aria-pressed'), 'false');
  await run('echo up-$((8*8))');
  await sees('up-64');
  await run('clear');
  await page.tap('[data-key=up]');
  await page.tap('[data-key=up]');
  await page.keyboard.press('Enter');
  await sees('up-64');
  await run('cat -v');
  await page.tap('[data-key=esc]');
  await page.tap('[data-key=left]');
  await page.keyboard.press('Enter');
  await sees('^[^[[D');
  await page.tap('[data-key=tab]');
  await page.keyboard.type('x');
  await sees('        x');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Control+d');
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

await step('was recorded so that the stock asciinema player plays it', async () => {
  const [cast, ...more] = (await readdir(recordings)).filter((n) => n.endsWith('.cast'));
  assert.deepEqual(more, [], 'one shell, one recording, whichever gateways wrote it');
  const data = await readFile(`${recordings}/${cast}`, 'utf8');
  const player = await context.newPage();
  await player.setContent('<div id="player"></div>');
  await player.addStyleTag({ path: 'node_modules/asciinema-player/dist/bundle/asciinema-player.css' });
  await player.addScriptTag({ path: 'node_modules/asciinema-player/dist/bundle/asciinema-player.min.js' });
  await player.evaluate((text) => new Promise((ok) => {
    const p = AsciinemaPlayer.create({ data: text }, document.getElementById('player'), { speed: 1000, idleTimeLimit: 0.01, fit: false });
    p.addEventListener('ended', ok);
    p.play();
  }), data);
  await player.waitForFunction(() => document.querySelector('.ap-player').textContent.includes('phone-4'));
  await player.screenshot({ path: `${shots}/7-recording.png` });
});

assert.deepEqual(errors, []);
await browser.close();
console.error('all steps held');
process.exit(0);
