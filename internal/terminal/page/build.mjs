// Builds the page into dist/: one script, one style sheet, one HTML file.
import { build } from 'esbuild';
import { copyFile, mkdir, rm } from 'node:fs/promises';

await rm('dist', { recursive: true, force: true });
await mkdir('dist');
await build({
  entryPoints: { terminal: 'src/page.mjs', 'wakebus-terminal': 'src/terminal.mjs' },
  bundle: true, minify: true, format: 'esm', target: 'es2022', outdir: 'dist', legalComments: 'linked',
  loader: { '.css': 'css' },
});
await copyFile('src/index.html', 'dist/index.html');
