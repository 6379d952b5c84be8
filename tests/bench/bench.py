"""Times calls of one tiny function under stacks of several depths: plain, with two reads of the
time-stamp counter, under ipath, and with glibc's backtrace(). Figures are medians of interleaved
runs; what counts is their ratio to two rdtsc in the same run, since machines differ and drift.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

# Frames of the path that the program has around its own: innermost, the first of the chain, thread,
# and glibc's start_thread and clone3.
AROUND = 5
DEPTHS = [5, 20, 100]
ROUNDS = 5
CALLS = {"plain": 20_000_000, "rdtsc": 10_000_000, "backtrace": 20_000}
IPATH_CALLS = {5: 3_000_000, 20: 2_000_000, 100: 500_000}
FLAGS = {"without": ["-fomit-frame-pointer"], "with": ["-fno-omit-frame-pointer"]}
# `ipath` must stay below this at depth 20 without frame pointers, ns a call.
BOUND = 400


def fail(text):
    sys.exit(f"bench: {text}")


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def target_time(program, depth, calls, threads, mode):
    return float(output([program, str(depth - AROUND), str(calls), str(threads), mode]))


def check(path, depth, calls):
    """The profile must hold every call on the one true path: a fast wrong answer is none."""
    with open(path) as file:
        profile = json.load(file)
    paths = profile["paths"]
    found = [(p["metrics"]["count"], len(p["stack"]), p["complete"]) for p in paths]
    if found != [(calls, depth, True)]:
        fail(f"expected {calls} calls on one complete path of {depth} frames, found {found}")


def ipath_time(ipath, program, depth, calls, threads, metrics, scratch):
    profile = os.path.join(scratch, "profile.json")
    command = [ipath, "run", "-f", "tiny", "-m", metrics, "--no-tui", "--interval", "10m"]
    command += ["-o", profile, "--"]
    command += [program, str(depth - AROUND), str(calls), str(threads), "plain"]
    first_line = output(command).split("\n", 1)[0]
    check(profile, depth, calls * threads)
    return float(first_line)


def measure(ipath, program, depth, scratch):
    """Median ns per call of each way, rounds interleaved."""
    times = {}
    for _ in range(ROUNDS):
        for mode, calls in CALLS.items():
            times.setdefault(mode, []).append(target_time(program, depth, calls, 1, mode))
        for metrics in ["count", "count,wall"]:
            time = ipath_time(ipath, program, depth, IPATH_CALLS[depth], 1, metrics, scratch)
            times.setdefault(metrics, []).append(time)
    return {way: statistics.median(values) for way, values in times.items()}


def row(pointers, depth, medians):
    plain = medians.pop("plain")
    added = {way: time - plain for way, time in medians.items()}
    floor = added["rdtsc"]
    return {
        "frame_pointers": pointers == "with",
        "depth": depth,
        "plain_ns": plain,
        "added_ns": added,
        "ratio": {way: time / floor for way, time in added.items()},
    }


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0]}, {len(names)} processors"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ipath", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    rows, threads = [], []
    print(f"{processor()}; Linux {platform.release()}")
    print("added ns a call, and as a multiple of two rdtsc; medians of", ROUNDS)
    print(f"{'frame pointers':15}{'depth':>6}{'two rdtsc':>11}", end="")
    for way in ["count", "count,wall", "backtrace()"]:
        print(f"{way:>19}", end="")
    print()
    with tempfile.TemporaryDirectory() as scratch:
        for pointers, flags in FLAGS.items():
            program = os.path.join(scratch, f"target-{pointers}")
            output(["gcc", "-O2", "-pthread", *flags, "-o", program, arguments.source])
            for depth in DEPTHS:
                found = row(pointers, depth, measure(arguments.ipath, program, depth, scratch))
                rows.append(found)
                added, ratio = found["added_ns"], found["ratio"]
                print(f"{pointers:15}{depth:6}{added['rdtsc']:11.1f}", end="")
                for way in ["count", "count,wall", "backtrace"]:
                    print(f"{added[way]:11.1f} {ratio[way]:6.2f}x", end="")
                print(flush=True)
        program = os.path.join(scratch, "target-without")
        for number in [1, 2, 8]:
            calls = 1_000_000
            plain = target_time(program, 20, CALLS["plain"], number, "plain")
            times = [
                ipath_time(arguments.ipath, program, 20, calls, number, "count,wall", scratch)
                for _ in range(ROUNDS)
            ]
            # Threads that share a processor take turns.
            turns = max(1, number / (os.cpu_count() or 1))
            added = (statistics.median(times) - plain) / turns
            threads.append({"threads": number, "added_ns": added})
            print(f"{number} threads on one function, depth 20, count,wall: {added:.1f} ns a call")
    at_20 = next(r for r in rows if r["depth"] == 20 and not r["frame_pointers"])
    cost = at_20["added_ns"]["count,wall"]
    verdict = "below" if cost < BOUND else "ABOVE"
    print(f"count,wall at depth 20 without frame pointers: {cost:.0f} ns, {verdict} {BOUND} ns")
    if arguments.json:
        figures = {"processor": processor(), "kernel": platform.release(), "rows": rows}
        with open(arguments.json, "w") as file:
            json.dump({**figures, "threads": threads}, file, indent=1)


main()
