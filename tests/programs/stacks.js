// Calls a native function from JavaScript functions at several depths. Counts the calls by V8's own
// stack: the functions of this file, innermost first.
//
//     node stacks.js ROUNDS
'use strict';
const fs = require('fs');

const sink = fs.openSync('/dev/null', 'w');
const bytes = Buffer.from('x');
const counted = new Map();
Error.stackTraceLimit = Infinity;

function count() {
  const error = {};
  Error.prepareStackTrace = (_, sites) => sites;
  Error.captureStackTrace(error, count);
  const own = error.stack.filter((site) => site.getFileName() === __filename);
  Error.prepareStackTrace = undefined;
  const stack = own.map((site) => site.getFunctionName() || 'main').join(';');
  counted.set(stack, (counted.get(stack) || 0) + 1);
}

function one(n) { count(); fs.writeSync(sink, bytes); return n + 1; }
function other(n) { count(); fs.writeSync(sink, bytes); return n ^ 1; }
function down(n, leaf) { return n === 0 ? leaf(n) : down(n - 1, leaf) + 1; }
function left(n) { return down(n % 5, one) + 1; }
function right(n) { return down(n % 7, other) + 1; }
function round(n) { left(n); if (n % 3 === 0) [n].forEach(right); }
for (let n = 0; n < Number(process.argv[2]); n++) round(n);
// Print with another function than the counted one.
process._rawDebug([...counted].map(([stack, n]) => `calls ${stack} ${n}`).join('\n'));
