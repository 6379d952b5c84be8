"""Time and memory to export a profile of 65,000 paths, by format."""

import os
import statistics
import subprocess
import time

from measure import fail, output

HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = ["json", "folded", "flamegraph", "html", "speedscope", "pprof", "callgrind", "firefox", "csv", "hatchet", "tau"]


def timed(command):
    """Elapsed seconds, and the maximum resident set in MB."""
    begun = time.monotonic()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        fail(f"{command}: status {status}")
    return time.monotonic() - begun, usage.ru_maxrss / 1024


def exports(bench):
    print("\nexports: a profile of 65,000 paths, some 20 callers each, three metrics, callers by call site; medians")
    program, profile = (os.path.join(bench.scratch, name) for name in ("many_paths", "many.json"))
    output(["gcc", "-O2", "-g", os.path.join(HERE, "..", "programs", "many_paths.c"), "-o", program])
    names = ["-f", "leaf", "-f", "walk", "-m", "count,wall,cpu"]
    output([bench.ipath, "run", "--no-tui", *names, "-o", profile, "--", program, "16", "1", "0"])
    rows = []
    print(f"{'format':>12}{'seconds':>10}{'MB':>8}")
    for to in FORMATS:
        times = []
        for number in range(bench.rounds):
            out = os.path.join(bench.scratch, f"exported-{number}.{to}")
            times.append(timed([bench.ipath, "export", profile, "--sites", "--to", to, "-o", out]))
        seconds, size = (statistics.median(values) for values in zip(*times))
        rows.append({"format": to, "seconds": seconds, "resident_mb": size})
        print(f"{to:>12}{seconds:10.2f}{size:8.0f}")
    return rows
