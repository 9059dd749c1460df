// Watches numbered lines in a real Chromium while the Go test that starts it breaks what lies between. Prints `at N` as
// lines are drawn, and at the end writes what the page drew and what its terminal holds to a file.
import { chromium } from 'playwright-core';
import { writeFile } from 'node:fs/promises';

const [url, out, lines] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const context = await browser.newContext({ viewport: { width: 900, height: 560 } });
context.setDefaultTimeout(600000); // the long form takes minutes on a busy machine; the Go test ends it
const page = await context.newPage();
await page.exposeFunction('at', (n) => console.log(`at ${n}`));
await page.goto(`${url}/?page=kill`);
await page.waitForSelector('#state[data-kind=live]');
await page.evaluate(() => {
  wakebus.term.options.scrollback = 200000;
  const drawn = []; // bytes, or the gaps between them
  const decoder = new TextDecoder('latin1');
  let last = '';
  wakebus.connection.addEventListener('output', ({ detail }) => {
    const text = decoder.decode(detail.bytes);
    drawn.push({ text });
    last = (last + text).slice(-64);
    const seen = last.match(/(\d{6})\r?\n/g)?.at(-1);
    if (seen) at(Number(seen.slice(0, 6)));
  });
  wakebus.connection.addEventListener('reset', ({ detail }) => drawn.push({ missing: detail.bytes ?? -1 }));
  wakebus.connection.addEventListener('ended', ({ detail }) => { window.over = detail.reason; });
  window.drawn = drawn;
});
const run = async (command) => { await page.keyboard.type(command); await page.keyboard.press('Enter'); };
const drew = (text) => page.waitForFunction((t) => drawn.map((d) => d.text ?? '').join('').includes(t), text);
await run('PS1=; stty -echo; cd /workspace; echo rea""dy');
await drew('ready');
await run(`exec script -q -f log -c 'i=0; while [ $i -lt ${lines} ]; do printf "%06d\\n" $i; i=$((i+1)); sleep 0.005; done; echo the last line'`);
await page.waitForFunction(() => window.over);
const result = await page.evaluate(() => new Promise((ok) => wakebus.term.write('', () => { // all before it is drawn
  const b = wakebus.term.buffer.active;
  const screen = [];
  for (let i = 0; i < b.length; i++) screen.push(b.getLine(i).translateToString(true));
  ok({ drawn, screen, ended: window.over });
})));
await writeFile(out, JSON.stringify(result));
await browser.close();
process.exit(0);
