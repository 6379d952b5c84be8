"""The cost of counting all edges of a loop, by gcov's instrumentation and by ipath, and of all paths."""

import os

from measure import output

ROUNDS = 20
WAYS = ["plain", "gcov", "edges", "paths"]


def edges(bench):
    print("\nedges: ten loops whose edges or paths are all counted; ns an iteration, multiples of the plain loop")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loops.c")
    programs = {way: os.path.join(bench.scratch, f"loops-{way}") for way in ("plain", "gcov")}
    output(["gcc", "-O2", source, "-o", programs["plain"]])
    output(["gcc", "-O2", "--coverage", source, "-o", programs["gcov"]])
    found = {}
    for _ in range(bench.rounds):
        for way in WAYS:
            for loop, ns in once(bench, programs, way).items():
                least = found.setdefault(loop, {})
                least[way] = min(ns, least.get(way, ns))
    print(f"{'loop':>12}{'plain':>8}" + "".join(f"{way:>18}" for way in WAYS[1:]))
    rows = []
    for loop, least in found.items():
        ratio = {way: least[way] / least["plain"] for way in WAYS[1:]}
        rows.append({"loop": loop, "plain_ns": least["plain"], "ns": least, "ratio": ratio})
        cells = "".join(f"{least[way]:10.2f} {ratio[way]:6.2f}x" for way in WAYS[1:])
        print(f"{loop:>12}{least['plain']:8.2f}{cells}")
    return rows


def once(bench, programs, way):
    """The time of an iteration of each loop."""
    program = programs.get(way, programs["plain"])
    command = [program, str(ROUNDS)]
    if way in ("edges", "paths"):
        names = ",".join(output([program, "1"]).split()[::2])
        profile = os.path.join(bench.scratch, f"{way}.json")
        command = [bench.ipath, "run", f"--{way}", names, "--no-tui", "--interval", "10m", "-o", profile, "--", *command]
    lines = [line.split() for line in output(command).splitlines()]
    return {loop: float(ns) for loop, ns in lines}
