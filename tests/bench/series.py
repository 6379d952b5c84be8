"""The series of measurements. Each prints a table and returns its rows for JSON."""

import json
import os
import re
import subprocess
import time

from measure import Case, Shape, fail, merged, output, timed

DEPTHS = [5, 20, 100]
MANY = 1000


def header(*columns):
    print("".join(f"{text:>{width}}" for text, width in columns))


def cell(figures, way):
    if way not in figures["added_ns"]:
        return f"{'-':>20}"
    return f"{figures['added_ns'][way]:11.1f} {figures['ratio'][way]:7.2f}x"


def depths(bench):
    print("\ndepths: one path, called again and again; added ns a call, multiples of two rdtsc.")
    print("floor: two rdtsc after as many compares as there are frames; ordered: the second one waits")
    ways = [*bench.metrics, "backtrace", "unwind"]
    names = {"backtrace": "backtrace()", "unwind": "unw_backtrace()"}
    widths = [(names.get(way, way), 20) for way in ways]
    floors = [("floor", 8), ("ordered", 9)]
    header(("frame pointers", 14), ("depth", 6), ("plain", 7), ("two rdtsc", 11), *floors, *widths)
    rows, cases = [], []
    for pointers in bench.programs:
        for shape in map(Shape, DEPTHS):
            others = {"backtrace": shape.with_calls(500, 10)}
            if pointers in bench.unwinding:
                others["unwind"] = shape.with_calls(2_000, 10)
            cases.append(Case(shape, bench.metrics, pointers, others))
    for case, times in zip(cases, bench.measure(cases)):
        pointers, depth, figures = case.pointers, case.shape.depth, merged(times)
        rows.append({"frame_pointers": pointers == "with", "depth": depth, **figures})
        floor = figures["floor_ns"]
        print(f"{pointers:>14}{depth:6}{figures['plain_ns']:7.1f}{figures['two_rdtsc_ns']:11.1f}", end="")
        print(f"{floor['loose']:8.1f}{floor['ordered']:9.1f}", *(cell(figures, w) for w in ways), sep="")
    if not bench.unwinding:
        print("unw_backtrace(): libunwind's headers are not installed")
    return rows


def threads(bench):
    print("\nthreads on one function, depth 20; processor time a call, added, ns")
    header(("threads", 8), ("two rdtsc", 11), ("count,wall", 20))
    rows = []
    numbers = [1, 2, 4, 8, 16, 32, 64]
    cases = [Case(Shape(20, threads=n, rounds=20 if n <= 8 else 5)) for n in numbers]
    for number, times in zip(numbers, bench.measure(cases)):
        figures = merged(times)
        rows.append({"threads": number, **figures})
        print(f"{number:8}{figures['two_rdtsc_ns']:11.1f}{cell(figures, 'count,wall')}")
    return rows


def cycles(bench):
    print("\ncycles: calls alternating between paths of depth 20; added ns a call")
    header(("paths", 6), ("part", 11), ("plain", 8), ("two rdtsc", 11), ("count,wall", 20))
    rows = []
    cases = []
    for number in [2, 8, 64]:
        cases += [Case(Shape(20, levels, number)) for levels in [number.bit_length() - 2, 16]]
    for case, times in zip(cases, bench.measure(cases)):
        number, figures = case.shape.paths, merged(times)
        part = "outermost" if case.shape.levels == 16 else "innermost"
        rows.append({"paths": number, "part": part, **figures})
        print(f"{number:6}{part:>11}{figures['plain_ns']:8.1f}", end="")
        print(f"{figures['two_rdtsc_ns']:11.1f}{cell(figures, 'count,wall')}")
    return rows


def paths(bench):
    print("\npaths: calls on paths of depth 20 in random order; added ns a call")
    header(("paths", 8), ("plain", 8), ("two rdtsc", 11), ("count,wall", 20), ("bytes/path", 12))
    rows, base = [], None
    numbers, cases = [1, 100, 10_000, 100_000], []
    for number in numbers:
        shape = Shape(20, 16, number, "random", max(20_000, number), 3 if number > 1000 else 20)
        cases.append(Case(shape))
    for number, times in zip(numbers, bench.measure(cases, min(3, bench.rounds))):
        figures = merged(times)
        segment = times["count,wall"].segment
        base = segment if base is None else base
        # The segment grows in steps of 64 KiB, so a small number of paths gives no figure.
        size = (segment - base) / (number - 1) if base >= 0 and number >= 10_000 else None
        rows.append({"paths": number, "segment_bytes_per_path": size, **figures})
        print(f"{number:8}{figures['plain_ns']:8.1f}{figures['two_rdtsc_ns']:11.1f}", end="")
        print(f"{cell(figures, 'count,wall')}{'-' if size is None else f'{size:.0f}':>12}")
    return rows


def chain(bench):
    print("\nchain: each call descends and returns through the frames, or comes from a loop at")
    print("their end; added ns a call. Walking must not spoil the prediction of the returns.")
    widths = [(way, 20) for way in bench.metrics]
    header(("depth", 6), ("calls", 8), ("plain", 8), ("two rdtsc", 11), *widths)
    rows = []
    shapes = [Shape(depth, levels) for depth in [20, 100] for levels in [0, depth - 4]]
    cases = [Case(shape, bench.metrics) for shape in shapes]
    for shape, times in zip(shapes, bench.measure(cases)):
        name, figures = "chain" if shape.levels else "loop", merged(times)
        rows.append({"depth": shape.depth, "calls": name, **figures})
        print(f"{shape.depth:6}{name:>8}{figures['plain_ns']:8.1f}", end="")
        print(f"{figures['two_rdtsc_ns']:11.1f}", *(cell(figures, w) for w in bench.metrics), sep="")
    return rows


def many_functions(scratch):
    """Builds a program that calls each of a thousand functions up to a thousand times a second."""
    names = [f"work_{i:03}" for i in range(MANY)]
    source, program = os.path.join(scratch, "many.c"), os.path.join(scratch, "many")
    with open(source, "w") as file:
        print("#include <unistd.h>\nstatic volatile long sink;", file=file)
        for name in names:
            head = f"__attribute__((noipa)) void {name}(long x)"
            print(head, "{ sink = sink * 3 + x; }", file=file)
        print(f"static void (*const all[])(long) = {{ {', '.join(names)} }};", file=file)
        print("int main(void) { for (;; usleep(1000))", file=file)
        print(f"for (int i = 0; i < {MANY}; i++) all[i](i); }}", file=file)
    output(["gcc", "-O2", source, "-o", program])
    return program


def tails(bench):
    print("\ntails: a call that leaves by a tail call, timed up to the return, beside one that returns; and")
    print("what else calls the callee, whose exits alone are probed; added ns a call")
    header(("two rdtsc", 11), ("returns", 20), ("leaves by tail call", 21), ("callee", 21))
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tails.c")
    program, profile = (os.path.join(bench.scratch, name) for name in ("tails", "tails.json"))
    output(["gcc", "-O2", source, "-o", program])
    ways = {"returns": ["-f", "returns"], "tails": ["-f", "tails"]}
    least = {}
    for _ in range(bench.rounds):
        for way, options in {"plain": None, **ways}.items():
            command = [program, "200000", "15"]
            if options:
                command = [bench.ipath, "run", *options, "-o", profile, "--", *command]
            found = numbers(output(command))
            least[way] = list(map(min, found, least.get(way, found)))
            if options:
                check_tails(profile, 200_000 * 15)
    callee, returns, tail, rdtsc = least["plain"]
    floor = rdtsc - callee
    added = {
        "returns": least["returns"][1] - returns,
        "tail": least["tails"][2] - tail,
        "callee": least["tails"][0] - callee,
    }
    ratio = {way: ns / floor for way, ns in added.items()}
    row = {"two_rdtsc_ns": floor, "added_ns": added, "ratio": ratio}
    cells = (cell(row, way) for way in ("returns", "tail", "callee"))
    print(f"{floor:11.1f}", *cells, sep="")
    return [row]


def check_tails(profile, calls):
    """Fails unless all calls of the only function were counted and timed up to the return."""
    with open(profile) as file:
        (function,) = json.load(file)["functions"]
    if function["totals"]["count"] != calls or function.get("tail", 0) != 0:
        fail(f"{function['name']}: {function['totals']['count']} of {calls} calls, {function}")


def numbers(text):
    """The four numbers that the program prints. `ipath run` adds a report to the output."""
    line = re.search(r"^(\d+\.\d+ ?){4}$", text, re.MULTILINE)
    return [float(word) for word in line.group().split()]


def attach(bench, process, pattern, number):
    """The duration of `ipath attach` and the stops of the session, in ms."""
    profile = os.path.join(bench.scratch, "many.json")
    pid = str(process.pid)
    command = [bench.ipath, "attach", pid, "-f", pattern, "--yes", "--no-tui"]
    seconds = timed([*command, "--keep", "--duration", "1ms"])
    time.sleep(0.05)
    output([bench.ipath, "detach", pid, "-o", profile])
    with open(profile) as file:
        found = json.load(file)
    called = [f for f in found["functions"] if f["totals"]["count"] > 0]
    if len(called) != number:
        fail(f"attach to {pattern}: {len(called)} of {number} functions were seen called")
    stops = found["session"]["stops"]
    before = [stop["ns"] / 1e6 for stop in stops if stop["why"] != "detach"]
    after = [stop["ns"] / 1e6 for stop in stops if stop["why"] == "detach"]
    return {"attach_ms": seconds * 1e3, "stopped_ms": sum(before), "longest_ms": max(before),
            "detach_stopped_ms": sum(after)}


def select(bench):
    print("\nselect: `ipath attach` to a running program of a thousand functions; ms")
    columns = ["attach_ms", "stopped_ms", "longest_ms", "detach_stopped_ms"]
    names = ["whole command", "stopped", "longest stop", "stopped by detach"]
    header(("functions", 10), *((name, 19) for name in names))
    rows = []
    with subprocess.Popen([many_functions(bench.scratch)]) as process:
        try:
            patterns = {1: "work_000", 10: "work_00?", 100: "work_0*", 1000: "work_*"}
            for number, pattern in patterns.items():
                tries = [attach(bench, process, pattern, number) for _ in range(3)]
                row = {column: min(t[column] for t in tries) for column in columns}
                rows.append({"functions": number, **row})
                print(f"{number:10}", *(f"{row[column]:19.2f}" for column in columns), sep="")
        finally:
            process.kill()
    return rows
