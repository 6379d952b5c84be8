"""Greenlets that switch inside calls of a C function: greenlets.py LIBRARY GO KIND SEED.

Waits until the file GO exists. KIND is
  random   greenlets that switch in random order, at different depths of the C stack
  same     greenlets that all make the same calls from the same call sites
  nested   nested calls, and greenlets that start other greenlets during a call
  gevent   gevent tasks that sleep, as in real programs
  threads  random, in two threads with their own greenlets

Prints the number of calls of each path, and the times that the library measured `inside` hold() and
`outside`, around it.
"""

import ctypes
import os
import random
import sys
import threading
import time

import greenlet

PATHS = 4
library = ctypes.PyDLL(sys.argv[1])
CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_long)
for path in range(PATHS):
    function = getattr(library, f"path_{path}")
    function.argtypes = [CALLBACK, ctypes.c_long]
    function.restype = ctypes.c_long
go, kind, seed = sys.argv[2], sys.argv[3], int(sys.argv[4])
calls = [0] * PATHS


def call(path, back, argument=0):
    calls[path] += 1
    return getattr(library, f"path_{path}")(back, argument)


def deeper(depth, function):
    # Through C, so that the C stack grows as well.
    return sorted([depth], key=lambda _: function() if depth == 0 else deeper(depth - 1, function))


def scheduled(chosen, make):
    """Resumes randomly chosen greenlets until all have ended."""
    waiting = [greenlet.greenlet(make(number)) for number in range(8)]
    while waiting:
        one = chosen.choice(waiting)
        one.switch()
        if one.dead:
            waiting.remove(one)


def run_random(chosen):
    main = greenlet.getcurrent()

    def make(number):
        def nap(_):
            time.sleep(chosen.random() / 1000)
            main.switch()
            return number

        back = CALLBACK(nap)

        def body():
            for round in range(12):
                deeper(chosen.randrange(4), lambda: call((number + round) % PATHS, back))

        return body

    scheduled(chosen, make)


def run_same(chosen):
    main = greenlet.getcurrent()

    def nap(_):
        time.sleep(chosen.random() / 1000)
        main.switch()
        return 0

    back = CALLBACK(nap)

    def body():
        for round in range(20):
            call(round % PATHS, back)

    scheduled(chosen, lambda number: body)


def run_nested(chosen):
    main = greenlet.getcurrent()

    def switch(_):
        time.sleep(chosen.random() / 1000)
        main.switch()
        return 0

    leaf = CALLBACK(switch)

    def within(depth):
        call(depth % PATHS, leaf)
        if depth > 0:
            call(depth % PATHS, nests, depth - 1)
        return depth

    nests = CALLBACK(within)

    def begin(_):
        # Starts during a call, and continues after that call has returned.
        child = greenlet.greenlet(lambda: call(1, leaf))
        child.switch()
        begun.append(child)
        main.switch()
        return 0

    begun = []
    begins = CALLBACK(begin)

    def make(number):
        def body():
            for _ in range(4):
                call(number % PATHS, nests, 3)
                call(3, begins)

        return body

    scheduled(chosen, make)
    for child in begun:
        while not child.dead:
            child.parent = main
            child.switch()


def run_gevent(chosen):
    import gevent

    def make(path, least):
        def nap(_):
            gevent.sleep(least + chosen.random() / 200)
            return 0

        back = CALLBACK(nap)

        def task():
            for _ in range(10):
                call(path, back)

        return task

    tasks = [make(number % PATHS, number % PATHS / 200) for number in range(12)]
    gevent.joinall([gevent.spawn(task) for task in tasks], raise_error=True)


def run_threads(chosen):
    others = [random.Random(chosen.random()) for _ in range(2)]
    # Only one thread at a time holds the interpreter, and the library's counters.
    threads = [threading.Thread(target=run_random, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.01)
globals()[f"run_{kind}"](random.Random(seed))
for what in ["inside", "outside"]:
    times = (ctypes.c_long * PATHS).in_dll(library, what)
    for path in range(PATHS):
        print(what, f"path_{path}", times[path])
print("calls hold", sum(calls))
for path in range(PATHS):
    print("from", f"path_{path}", calls[path])
print("end", flush=True)
