// Calls a native function once per round, from an interpreted function below a frame that V8's
// deoptimizer created. The optimized `outer` contains `leaf`, which is deoptimized before its call.
//
//     node --allow-natives-syntax deoptimized.js ROUNDS
'use strict';
const fs = require('fs');

const sink = fs.openSync('/dev/null', 'w');
const bytes = Buffer.from('x');

function leaf(of) { const n = of.value + 1; fs.writeSync(sink, bytes); return n; }
function outer(of) { return leaf(of) + 1; }

for (let round = 0; round < Number(process.argv[2]); round++) {
  %PrepareFunctionForOptimization(leaf);
  %PrepareFunctionForOptimization(outer);
  for (let n = 0; n < 5; n++) outer({ value: n });
  %OptimizeFunctionOnNextCall(outer);
  outer({ value: 1 });
  outer({ [`other${round}`]: 1, value: 1.5 });
}
