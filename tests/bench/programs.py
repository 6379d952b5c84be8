"""Real programs with hot functions measured, by ipath and other tools: the cost of an operation,
and the number of calls that each tool has seen."""

import contextlib
import os
import signal
import statistics
import time

import tools
import workloads
from measure import Unavailable, fail

TOOLS = {
    "plain": tools.Tool,
    "ipath count,wall": tools.Ipath,
    "bpftrace, time by ustack": tools.Bpftrace,
    "perf record -g on uprobes": tools.Perf,
    "uftrace record -P": tools.Uftrace,
}
WORKLOADS = [
    workloads.Redis(),
    workloads.Sqlite(),
    workloads.Python(),
    workloads.Halo(),
    workloads.PingPong(),
]


def processor_time(pids):
    """The processor time of all threads of the processes, in seconds."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
    return total / 1e9


@contextlib.contextmanager
def killed(pids):
    """Kills these processes at the end, even if their parent does not."""
    descriptors = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
    finally:
        for descriptor in descriptors:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)


def send(pids, number):
    for pid in pids:
        os.kill(pid, number)


def once(bench, workload, tool):
    """Elapsed seconds, processor seconds and calls per operation."""
    running = workload.running(bench.scratch, tool.prefix())
    with contextlib.ExitStack() as last, running as (pids, work, done):
        last.enter_context(killed(pids))
        # Stop the programs: work done while the tool attaches or detaches would be counted in part.
        send(pids, signal.SIGSTOP)
        before = done()
        with tool.on(pids) as calls:
            send(pids, signal.SIGCONT)
            cpu, clock = processor_time(pids), time.monotonic()
            count = work(int(workload.work * tool.share))
            clock, cpu = time.monotonic() - clock, processor_time(pids) - cpu
            send(pids, signal.SIGSTOP)
            seen, after = calls(), done()
        send(pids, signal.SIGKILL if workload.is_endless else signal.SIGCONT)
    if count < 1:
        fail(f"{workload.name}: nothing done")
    if seen is None:
        # A count of the whole run, if there is one.
        before, seen = 0, tool.calls_after()
    calls = None if seen is None else seen / (after - before)
    return {"time": clock / count, "cpu": cpu / count, "calls": calls}


def measured(bench, workload):
    """The figures by tool, and the reasons of tools that are not available."""
    places = [tools.place(bench.ipath, *function) for function in workload.functions]
    found, reasons = {name: [] for name in TOOLS}, {}
    for _ in range(min(3, bench.rounds)):
        for name, tool in TOOLS.items():
            if name not in reasons:
                try:
                    found[name].append(once(bench, workload, tool(bench, places)))
                except Unavailable as reason:
                    if name == "plain":
                        raise
                    reasons[name] = str(reason)
    return found, reasons


def row(rounds, plain):
    """The medians of all rounds. Ratios are to the plain run of the same round."""
    middle = {name: statistics.median(r[name] for r in rounds) for name in ("time", "cpu")}
    pairs = list(zip(rounds, plain))
    ratio = {name: statistics.median(r[name] / p[name] for r, p in pairs) for name in middle}
    seen = [r["calls"] for r in rounds if r["calls"] is not None]
    return {
        "us": {name: 1e6 * value for name, value in middle.items()},
        "ratio": ratio,
        "calls": statistics.median(seen) if seen else None,
    }


def programs(bench):
    print("\nprograms: an operation under each tool, and how many calls it saw; the median of the")
    print("rounds; ratios to the plain run of the same round")
    print(f"{'':28}{'us':>11}{'ratio':>8}{'us of CPU':>11}{'ratio':>8}{'calls':>9}")
    rows = []
    for workload in WORKLOADS:
        names = ", ".join(name for _, name in workload.functions)
        print(f"{workload.name}: {names}")
        try:
            found, reasons = measured(bench, workload)
        except Unavailable as reason:
            print(f"  - {reason}")
            continue
        figures = {}
        for name, rounds in found.items():
            if name in reasons:
                print(f"  {name:26}{'-':>11}  {reasons[name]}")
                continue
            figures[name] = row(rounds, found["plain"])
            us, ratio, calls = (figures[name][key] for key in ("us", "ratio", "calls"))
            shown = "" if calls is None else f"{calls:9.2f}"
            print(f"  {name:26}{us['time']:11.2f}{ratio['time']:7.2f}x", end="")
            print(f"{us['cpu']:11.2f}{ratio['cpu']:7.2f}x{shown}")
        row_of = {"program": workload.name, "functions": names}
        rows.append({**row_of, "tools": figures, "unavailable": reasons})
    return rows
