"""Time and maximum memory of reports and comparisons of 65,536 paths, and of merges of up to 10,000
profiles of 1,000 paths."""

import json
import os
import subprocess
import tempfile
import time

PATHS = 65_536
DEPTH = 20
MERGED = [100, 1000, 10_000]
EACH = 1000


def stats(sums):
    """The statistics of a timer and the number of calls, from (total ns, calls) pairs.

    Each call takes 64 to 127 ns.
    """
    calls = sum(calls for _, calls in sums)
    total = sum(total for total, _ in sums)
    both = {"sum": total, "min": 64, "max": 127, "outermost": total, "exclusive": total}
    return both, calls


def profile(paths, process=0):
    """A profile of one function with `paths` paths. `process` varies labels and numbers."""
    frames = [
        {
            "module": 0, "address": 0x1000 + 16 * n, "function": f"caller_{n // 8}",
            "offset": 16 * (n % 8), "file": "app.c", "line": n + 1, "inlined": [],
        }
        for n in range(max(DEPTH * 16, paths // 16))
    ]
    entries, sums = [], []
    for n in range(paths):
        calls = 10 + n % 7 + process % 5
        both, _ = stats([(80 * calls + n, calls)])
        sums.append((both["sum"], calls))
        stack = [(n * (k + 1) + (n >> k)) % len(frames) for k in range(DEPTH - 1)] + [n % len(frames)]
        entries.append({
            "function": 0, "stack": stack, "complete": True, "thread": None,
            "metrics": {"count": calls, "wall": {**both, "hist": [[6, calls]]}},
        })
    both, calls = stats(sums)
    return {
        "schema": "ipath-profile/1", "ipath": "0.1.0",
        "target": {
            "pid": 1000 + process, "exe": "/usr/bin/app", "args": ["app"], "host": "n1",
            "labels": {"rank": str(process)},
        },
        "session": {
            "started_unix_ns": 1 + process, "elapsed_ns": 10**9, "clock_hz": 10**9, "stops": [],
        },
        "metrics": [{"name": "count", "unit": "calls"}, {"name": "wall", "unit": "ns"}],
        "modules": [{"path": "/usr/bin/app", "build_id": "ab12"}],
        "functions": [{
            "name": "work", "linkage": "work", "module": 0, "address": 4560, "size": 80,
            "entry": "window", "exits": ["window"], "totals": {"count": calls, "wall": both},
        }],
        "refused": [], "frames": frames, "paths": entries,
        "losses": {"missed": 0, "overflow": 0, "unwound": 0, "open": 0, "incomplete": 0},
    }


def write(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump(value, file, separators=(",", ":"))
    return path


def run(command):
    """Elapsed seconds, and the maximum resident set in KiB."""
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{command[:3]}: {child.returncode}")
    return time.monotonic() - begun, usage.ru_maxrss


def profiles(bench):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        large = write(folder, "large.json", profile(PATHS))
        print(f"\nprofiles: of {PATHS} paths, {os.path.getsize(large) >> 20} MiB")
        for options in [[], ["--tree"], ["--json"], ["--limit", "0"]]:
            seconds, memory = min(run([bench.ipath, "report", large, *options]) for _ in range(3))
            rows.append({"report": options, "seconds": seconds, "max_rss_kib": memory})
            print(f"report {' '.join(options):12}{seconds:8.2f} s{memory >> 10:8} MiB")
        seconds, memory = run([bench.ipath, "diff", large, large])
        rows.append({"diff": PATHS, "seconds": seconds, "max_rss_kib": memory})
        print(f"diff               {seconds:8.2f} s{memory >> 10:8} MiB")
        files = []
        for number in MERGED:
            while len(files) < number:
                files.append(write(folder, f"rank{len(files)}.json", profile(EACH, len(files))))
            out = os.path.join(folder, "all.json")
            seconds, memory = run([bench.ipath, "merge", *files, "-o", out])
            rows.append({"merge": number, "seconds": seconds, "max_rss_kib": memory})
            print(f"merge {number:6} files {seconds:8.2f} s{memory >> 10:8} MiB, {1e3 * seconds / number:.2f} ms each")
    return rows
