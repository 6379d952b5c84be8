"""The cost of a call with each choice of metrics, and of each additional metric."""

import json
import os
import re
import statistics

from measure import fail, output, run

CALLS, ROUNDS = 100_000, 10
# The cost that metrics add is the difference between two choices.
CHOICES = ["count", "wall", "wall,cpu,blocked", "wall,arg1", "wall,ret", "count,arg1"]
ADDED = {
    "cpu and blocked": ("wall,cpu,blocked", "wall"),
    "a value at entry": ("wall,arg1", "wall"),
    "a value at exit": ("wall,ret", "wall"),
    "a value at entry, without times": ("count,arg1", "count"),
}


class Refused(Exception):
    """This ipath does not have one of the metrics."""


def metrics(bench):
    print("\nmetrics: calls of one function with each choice of metrics; added ns a call, the")
    print("median of the processes")
    program = os.path.join(bench.scratch, "metrics")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.c")
    output(["gcc", "-O2", source, "-o", program])
    found, refused = {choice: [] for choice in CHOICES}, {}
    for _ in range(bench.rounds):
        for choice in [choice for choice in CHOICES if choice not in refused]:
            try:
                found[choice].append(once(bench, program, choice))
            except Refused as reason:
                refused[choice] = str(reason)
    floor = statistics.median(two for rounds in found.values() for two, _ in rounds)
    print(f"{'two rdtsc':36}{floor:10.1f}")
    added = {}
    for choice, rounds in found.items():
        if choice in refused:
            print(f"{choice:36}{'-':>10}  {refused[choice]}")
        else:
            added[choice] = statistics.median(ns for _, ns in rounds)
            print(f"{choice:36}{added[choice]:10.1f}{added[choice] / floor:9.2f}x")
    more = {}
    for what, (with_it, without) in ADDED.items():
        if with_it in added and without in added:
            pairs = zip(found[with_it], found[without])
            more[what] = statistics.median(one[1] - other[1] for one, other in pairs)
            print(f"{what + ' adds':36}{more[what]:10.1f}")
    return [{"two_rdtsc_ns": floor, "added_ns": added, "more_ns": more, "refused": refused}]


def once(bench, program, choice):
    """The ns per call that two rdtsc and this choice of metrics add, in one process."""
    profile = os.path.join(bench.scratch, "metrics.json")
    command = [bench.ipath, "run", "-f", "measured", "-m", choice, "--no-tui", "--interval", "10m"]
    done = run([*command, "-o", profile, "--", program, str(CALLS), str(ROUNDS)])
    if "not a metric" in done.stderr:
        raise Refused(done.stderr.strip().split("\n")[0])
    line = re.search(r"^metrics (.*)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or line is None:
        fail(f"{choice}: exit status {done.returncode}: {done.stderr.strip()}")
    twin, rdtsc, measured, *sums = map(float, line.group(1).split())
    with open(profile) as file:
        check(json.load(file), choice, *map(int, sums))
    return rdtsc - twin, measured - twin


def check(profile, choice, calls, arguments, returns):
    """Fails unless every call and every value was recorded."""
    lost = {name: number for name, number in profile["losses"].items() if number}
    (function,) = profile["functions"]
    totals = function["totals"]
    if lost or totals["count"] != calls:
        fail(f"{choice}: {totals['count']} of {calls} calls, lost {lost}")
    for name, expected in {"arg1": arguments, "ret": returns}.items():
        if name in choice.split(",") and totals[name]["sum"] != expected:
            fail(f"{choice}: {name} adds up to {totals[name]['sum']}, expected {expected}")
    if "cpu" in choice.split(",") and totals["cpu"]["sum"] > totals["wall"]["sum"] + calls:
        fail(f"{choice}: more time on a processor than has passed: {totals}")
