"""Frida's side of the benchmark: times `tiny` in a running target, with Interceptor and CModule.

usage: frida_peer.py ADDRESS PROGRAM ARGS... wait      (ADDRESS: of tiny in the file, in hex)
Prints the target's line, then: calls entered, calls left, frames of the last walk, ns measured.
Needs a Python with the package frida.
"""

import json
import subprocess
import sys

import frida

# Frida compiles this in the target. The walk follows frame pointers and sums up the return
# addresses. It does not distinguish paths, so the cost is the minimum for a tool of this kind. A
# CModule's own variables are read-only, so these are allocated in JavaScript.
C = r"""
#include <gum/guminterceptor.h>

extern int clock_gettime(int clock, long *time);
extern guint64 entered, left, frames, ns, hash;

static guint64 now(void)
{
    long t[2];
    clock_gettime(1, t);
    return (guint64)t[0] * 1000000000 + (guint64)t[1];
}

void on_enter(GumInvocationContext *context)
{
    guint64 stack = context->cpu_context->rsp, frame = context->cpu_context->rbp;
    guint64 number = 1, sum = *(guint64 *)stack;
    while (frame >= stack && frame - stack < 65536 && number < 256) {
        sum = sum * 31 + ((guint64 *)frame)[1];
        number++;
        stack = frame + 16;
        frame = *(guint64 *)frame;
    }
    entered++;
    frames = number;
    hash = sum;
    *GUM_IC_GET_INVOCATION_DATA(context, guint64) = now();
}

void on_leave(GumInvocationContext *context)
{
    ns += now() - *GUM_IC_GET_INVOCATION_DATA(context, guint64);
    left++;
}
"""

JAVASCRIPT = """
const names = ['entered', 'left', 'frames', 'ns', 'hash'];
const symbols = Object.fromEntries(names.map(name => [name, Memory.alloc(8)]));
symbols.clock_gettime = Process.getModuleByName('libc.so.6').getExportByName('clock_gettime');
const code = new CModule(%s, symbols);
const hooks = {onEnter: code.on_enter, onLeave: code.on_leave};
Interceptor.attach(Process.mainModule.base.add('%s'), hooks);
Interceptor.flush();
rpc.exports = {
    result: () => names.slice(0, 4).map(name => symbols[name].readU64().toString()),
};
"""


def main():
    address, *command = sys.argv[1:]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
        session = frida.attach(program.pid)
        script = session.create_script(JAVASCRIPT % (json.dumps(C), address))
        script.on("message", lambda message, _: print(message, file=sys.stderr))
        script.load()
        program.stdin.write("\n")
        program.stdin.flush()
        print(program.stdout.readline().strip())
        print(*script.exports_sync.result())


main()
