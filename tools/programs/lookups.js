// Random keys of an LMDB map by npm's lmdb: node lookups.js make | plain|remedied HOW, as in misuse.py.
const { open } = require(process.env.MODULES + '/lmdb');
const { writeFileSync } = require('fs');
const { randomBytes } = require('crypto');
const ROWS = 400000;
const key = (row) => String(row).padStart(8, '0');

async function make() {
  const base = open({ path: 'node.mdb', encoding: 'binary', mapSize: 2 ** 30 });
  for (let row = 0; row < ROWS; row++) {
    const put = base.put(key(row), randomBytes(1000));
    if (row % 10000 === 9999) await put;
  }
  await base.flushed;
  await base.close();
}

function work(isRemedied, how) {
  const base = open({ path: 'node.mdb', encoding: 'binary', readOnly: true, noReadAhead: isRemedied });
  let state = 1;
  const row = () => ((state = (state * 48271) % 2147483647), state % ROWS);
  base.get(key(row()));
  writeFileSync('ready', '');
  const started = performance.now();
  const [kind, most] = how.split('=');
  let done = 0;
  const seconds = () => (performance.now() - started) / 1000;
  while (!(kind === 'n' && done >= +most) && !(kind === 's' && seconds() >= +most)) {
    base.get(key(row()));
    done++;
  }
  console.log(done, seconds());
  process.exit(0);
}

if (process.argv[2] === 'make') make();
else work(process.argv[2] === 'remedied', process.argv[3]);
