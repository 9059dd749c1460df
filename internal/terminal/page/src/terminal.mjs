// A terminal in an element. An embedding page imports mount(); page.mjs is our own use of it.
import { Terminal } from '@xterm/xterm';
import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Connection } from './connection.mjs';

const LIGHT = { background: '#ffffff', foreground: '#1f2328', cursor: '#0550ae', selectionBackground: '#b6d7ff' };
const DARK = { background: '#0d1117', foreground: '#e6edf3', cursor: '#79c0ff', selectionBackground: '#264f78' };

/** What each ending means, for a person. */
const ENDINGS = {
  exited: (e) => `The shell ended${e.exitCode === undefined ? '' : ` with code ${e.exitCode}`}.`,
  gone: () => 'The shell does not exist any more.',
  detached: () => 'Detached. The shell goes on.',
  revoked: () => 'Your access was revoked.',
  denied: () => 'Access was refused.',
  replaced: () => 'This terminal was opened in another window.',
  too_many: () => 'Too many terminals are open.',
  failed: () => 'The terminal could not be opened.',
};

const MAX_CLIP = 128 * 1024; // bytes of base64

// Programs may set the clipboard (OSC 52: tmux and vim copy so), never read it: what a person copied elsewhere is not
// theirs. A request to read is not even answered, for the answer would be typed.
function clip(data) {
  const [, text = '?'] = data.split(';');
  if (text === '?' || text === '' || text.length > MAX_CLIP) return true;
  try {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    navigator.clipboard?.writeText(new TextDecoder().decode(bytes)).catch(() => {}); // the browser may refuse
  } catch { /* not base64 */ }
  return true;
}

/**
 * Shows a terminal in el. Options: url (wss://…/v1/terminal), page, getTicket (async, a fresh ticket for each
 * connection), onState, onEnd, onNotice. Returns {term, connection, search, focus, reopen, dispose}.
 */
export function mount(el, options) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const term = new Terminal({
    allowProposedApi: true, cursorBlink: true, scrollback: 5000, fontSize: 14, lineHeight: 1.2, theme: dark.matches ? DARK : LIGHT,
    fontFamily: 'ui-monospace, "Cascadia Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
    screenReaderMode: options.screenReader ?? false, minimumContrastRatio: 4.5,
  });
  const fit = new FitAddon();
  const search = new SearchAddon();
  for (const addon of [fit, search, new UnicodeGraphemesAddon(), new WebLinksAddon()]) term.loadAddon(addon);
  term.parser.registerOscHandler(52, clip);
  term.open(el);

  const connection = new Connection(options);
  let replaying = 0; // pieces of a replay that are not parsed yet: answers to their queries must not be typed
  term.onData((data) => { if (replaying === 0) connection.type(data); });
  term.onBinary((data) => { if (replaying === 0) connection.type(Uint8Array.from(data, (c) => c.charCodeAt(0))); });
  term.onResize(({ cols, rows }) => connection.resize(cols, rows));
  term.attachCustomKeyEventHandler((e) => keys(e, term, options));

  connection.addEventListener('output', ({ detail }) => {
    if (detail.old) replaying++;
    term.write(detail.bytes, () => {
      if (detail.old) replaying--;
      detail.shown();
    });
  });
  connection.addEventListener('reset', ({ detail }) => {
    if (detail.bytes === null || detail.bytes === 0) term.write('\x1bc');
    else term.write(`\x18\x1b[0m\r\n\x1b[2m[${detail.bytes} bytes were skipped]\x1b[0m\r\n`);
  });
  connection.addEventListener('state', ({ detail }) => options.onState?.(detail.state));
  connection.addEventListener('notice', ({ detail }) => options.onNotice?.(detail.message, detail));
  connection.addEventListener('ended', ({ detail }) => {
    const what = ENDINGS[detail.reason]?.(detail) ?? `The terminal ended: ${detail.reason}.`;
    options.onEnd?.(detail.message ? `${what} ${detail.message}` : what, detail);
  });

  const refit = () => { if (el.clientWidth > 0 && el.clientHeight > 0) fit.fit(); };
  const observer = new ResizeObserver(refit);
  observer.observe(el);
  const recolour = () => { term.options.theme = dark.matches ? DARK : LIGHT; };
  dark.addEventListener('change', recolour);
  const wake = () => { if (document.visibilityState === 'visible') { connection.wake(); refit(); } };
  document.addEventListener('visibilitychange', wake);
  addEventListener('online', wake);
  refit();
  connection.resize(term.cols, term.rows);
  connection.connect();

  return {
    term, connection, search, focus: () => term.focus(),
    reopen() { connection.forget(); connection.connect(); },
    dispose() {
      observer.disconnect();
      dark.removeEventListener('change', recolour);
      document.removeEventListener('visibilitychange', wake);
      removeEventListener('online', wake);
      connection.finished = true;
      connection.ws?.close(1000);
      term.dispose();
    },
  };
}

/** Keys that are the page's: false keeps them from the shell. Shift+Tab is the way out for a keyboard. */
function keys(e, term, options) {
  if (e.type !== 'keydown') return true;
  if (e.key === 'Tab' && e.shiftKey) {
    e.preventDefault();
    options.onLeave?.();
    return false;
  }
  const copy = (e.ctrlKey && e.shiftKey && e.code === 'KeyC') || (e.metaKey && e.code === 'KeyC');
  if (copy && term.hasSelection()) {
    navigator.clipboard?.writeText(term.getSelection());
    e.preventDefault();
    return false;
  }
  if (e.ctrlKey && e.shiftKey && e.code === 'KeyV') {
    e.preventDefault();
    navigator.clipboard?.readText().then((text) => term.paste(text));
    return false;
  }
  if (e.ctrlKey && e.shiftKey && e.code === 'KeyF') {
    e.preventDefault();
    options.onSearch?.();
    return false;
  }
  return true;
}
