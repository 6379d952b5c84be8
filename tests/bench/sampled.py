"""The cost of `ipath suggest` to its process: processor time per operation with and without it."""

import contextlib
import os
import signal
import statistics
import subprocess
import time

import workloads
from measure import Unavailable, fail, output
from programs import killed, processor_time
from tools import started

# Seconds of sampling.
SECONDS = 10
# Seconds until a sampling window has no more aftereffects in the kernel.
PAUSE = 1.2


class Switches(workloads.Shell):
    """Context switches of threads that pass a byte back and forth."""

    is_endless = False
    prepare, done = "", "\n"
    work = 5_000

    def __init__(self, pairs):
        self.pairs, self.name = pairs, "switches"
        self.shown = f"switches, {2 * pairs} threads"

    def command(self):
        return [self.program, str(self.pairs)]

    @contextlib.contextmanager
    def running(self, scratch, prefix):
        self.program = os.path.join(scratch, "switches")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "switches.c")
        output(["gcc", "-O2", "-pthread", source, "-o", self.program])
        with super().running(scratch, prefix) as found:
            yield found

    def ask(self, process, text):
        if text.strip():
            super().ask(process, text)

    def text(self, count):
        return str(count)


class Redis(workloads.Redis):
    work = 40_000


class Halo(workloads.Halo):
    work = 100


WORKLOADS = [Redis(), Halo(), Switches(1), Switches(50)]


def an_operation(pids, work, count, is_over):
    """Processor ns per operation. Operations repeat until `is_over` returns true."""
    cpu, done = processor_time(pids), 0
    while not is_over():
        done += work(count)
    if done == 0:
        fail("nothing done")
    return 1e9 * (processor_time(pids) - cpu) / done


def plain(pids, work, count):
    limit = time.monotonic() + SECONDS
    return an_operation(pids, work, count, lambda: time.monotonic() > limit)


def sampled(bench, pids, work, count):
    command = [bench.ipath, "suggest", str(pids[0]), "--duration", f"{SECONDS}s"]
    with started(command, stdout=subprocess.DEVNULL) as process:
        found = an_operation(pids[:1], work, count, lambda: process.poll() is not None)
    if process.returncode != 0:
        fail(f"suggest: exit status {process.returncode}")
    return found


def measured(bench, workload):
    """Per round: processor ns per operation without and with `ipath suggest`.

    The first is the mean of the times before and after.
    """
    with contextlib.ExitStack() as last, workload.running(bench.scratch, []) as (pids, work, _):
        last.enter_context(killed(pids))
        rounds, before = [], plain(pids[:1], work, workload.work)
        for _ in range(bench.rounds):
            under = sampled(bench, pids, work, workload.work)
            time.sleep(PAUSE)
            after = plain(pids[:1], work, workload.work)
            rounds.append(((before + after) / 2, under))
            before = after
        if workload.is_endless:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    return rounds


def suggest(bench):
    print(f"\nsuggest: CPU time of an operation while `ipath suggest` looks for {SECONDS} s, and in as long before and")
    print("after; the median of the rounds, and of what it costs in each")
    print(f"{'':28}{'plain, ns':>11}{'with, ns':>11}{'costs':>9}")
    rows = []
    for workload in WORKLOADS:
        name = getattr(workload, "shown", workload.name)
        try:
            rounds = measured(bench, workload)
        except Unavailable as reason:
            print(f"{name:28}{'-':>11}  {reason}")
            continue
        without, under = (statistics.median(values) for values in zip(*rounds))
        cost = statistics.median(with_it / without for without, with_it in rounds) - 1
        rows.append({"program": name, "plain_ns": without, "with_ns": under, "cost": cost})
        print(f"{name:28}{without:11.0f}{under:11.0f}{100 * cost:7.1f} %")
    return rows
