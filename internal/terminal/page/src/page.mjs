// The page that the gateway serves.
import '@xterm/xterm/css/xterm.css';
import './page.css';
import { mount } from './terminal.mjs';

const $ = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const base = new URL('.', location.href);
base.protocol = base.protocol === 'https:' ? 'wss:' : 'ws:';
base.search = '';
base.hash = '';

const STATES = {
  connecting: 'Connecting…', reconnecting: 'Connection lost, coming back…', waking: 'Waking the sandbox…',
  attaching: 'Attaching…', replaying: 'Catching up…', live: 'Connected',
};

// Each load is a client of its own: its count of typed bytes lives and dies with this script.
const client = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, '0')).join('');

function say(text, kind) {
  $('state').textContent = text;
  $('state').dataset.kind = kind;
}

let hideNotice;
const t = mount($('terminal'), {
  url: new URL('v1/terminal', base).href,
  page: query.get('page') ?? 'dev',
  client,
  screenReader: query.has('reader'),
  onState(state) { say(STATES[state] ?? state, state); if (state === 'live') $('ended').hidden = true; },
  onNotice(text) {
    $('notice').textContent = text;
    $('notice').hidden = false;
    clearTimeout(hideNotice);
    hideNotice = setTimeout(() => { $('notice').hidden = true; }, 8000);
  },
  onEnd(text) {
    say('Ended', 'ended');
    $('why').textContent = text;
    $('ended').hidden = false;
    $('again').focus();
  },
  onLeave() { $('search').focus(); },
  onSearch() { $('search').focus(); },
});
self.wakebus = t;

$('again').onclick = () => { $('ended').hidden = true; t.reopen(); t.focus(); };
$('search').oninput = () => t.search.findNext($('search').value, { incremental: true });
$('search').onkeydown = (e) => {
  if (e.key === 'Enter') (e.shiftKey ? t.search.findPrevious : t.search.findNext).call(t.search, $('search').value);
  if (e.key === 'Escape') { t.search.clearDecorations(); t.focus(); }
};
$('reader').checked = query.has('reader');
$('reader').onchange = () => { t.term.options.screenReaderMode = $('reader').checked; t.focus(); };

// The row of keys that a touch screen lacks. Ctrl holds for the next key.
let ctrl = false;
const hold = (on) => { ctrl = on; $('ctrl').setAttribute('aria-pressed', String(on)); };
const type = t.connection.type.bind(t.connection);
t.connection.type = (input) => {
  if (ctrl && typeof input === 'string' && /^[a-z@[\\\]^_]$/i.test(input)) {
    hold(false);
    input = String.fromCharCode(input.toUpperCase().charCodeAt(0) & 31);
  }
  return type(input);
};
const KEYS = { esc: '\x1b', tab: '\t', up: 'A', down: 'B', right: 'C', left: 'D' };
for (const button of document.querySelectorAll('#keys button')) {
  button.onclick = () => {
    const k = button.dataset.key;
    if (k === 'ctrl') hold(!ctrl);
    else if (k === 'esc' || k === 'tab') t.connection.type(KEYS[k]);
    else t.connection.type((t.term.modes.applicationCursorKeysMode ? '\x1bO' : '\x1b[') + KEYS[k]);
    t.focus();
  };
}
t.focus();
