"""The cost of a call whose cache lines have been evicted."""

import json
import os
import re
import statistics

from measure import fail, output

# KiB that the program reads between two calls: number of calls in a round.
BUFFERS = {0: 20_000, 64: 4_000, 1024: 500, 4096: 100}
DEPTHS = [8, 20]
ROUNDS = 8


def cold(bench):
    print("\ncold: a call timed by itself, after the program has read as many KiB; added ns a call, the median of")
    print("the processes")
    widths = [(way, 20) for way in bench.metrics]
    columns = [("depth", 6), ("KiB", 6), ("plain", 8), ("two rdtsc", 11), *widths]
    print("".join(f"{text:>{width}}" for text, width in columns))
    program = os.path.join(bench.scratch, "cold")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cold.c")
    output(["gcc", "-O2", source, "-o", program])
    found = {}
    for _ in range(bench.rounds):
        for depth in DEPTHS:
            for size, calls in BUFFERS.items():
                for way in bench.metrics:
                    times = once(bench, [program, depth, size, calls, ROUNDS], way)
                    found.setdefault((depth, size), {}).setdefault(way, []).append(times)
    rows = []
    for (depth, size), ways in found.items():
        plain, rdtsc = (
            statistics.median(times[kind] for way in ways.values() for times in way) for kind in (0, 1)
        )
        added = {
            way: statistics.median(tiny - twin for twin, _, tiny in times) for way, times in ways.items()
        }
        floor = rdtsc - plain
        ratio = {way: ns / floor for way, ns in added.items()}
        row = {"depth": depth, "KiB": size, "plain_ns": plain, "two_rdtsc_ns": floor}
        rows.append({**row, "added_ns": added, "ratio": ratio})
        print(f"{depth:6}{size:6}{plain:8.1f}{floor:11.1f}", end="")
        print("".join(f"{added[way]:20.1f}" for way in bench.metrics))
    return rows


def once(bench, program, way):
    """The three times that the program prints.

    Fails unless every call was counted, all on one path of the right depth.
    """
    profile = os.path.join(bench.scratch, "cold.json")
    metrics, *clock = way.split()
    command = [bench.ipath, "run", "-f", "tiny", "-m", metrics, "--no-tui", "--interval", "10m"]
    command += [option for how in clock for option in ("--clock", how)]
    text = output([*command, "-o", profile, "--", *map(str, program)])
    with open(profile) as file:
        paths = json.load(file)["paths"]
    depth, calls = program[1], program[3] * program[4]
    if [(path["metrics"]["count"], len(path["stack"])) for path in paths] != [(calls, depth)]:
        fail(f"cold: expected {calls} calls at depth {depth}, found {paths}")
    return [float(word) for word in re.search(r"^(\d+\.\d+ ?){3}$", text, re.MULTILINE).group().split()]
