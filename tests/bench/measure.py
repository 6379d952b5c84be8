"""Runs the target, plain and under ipath, and checks that every call is recorded."""

import dataclasses
import json
import os
import subprocess
import sys
import time

FLAGS = {"without": ["-fomit-frame-pointer"], "with": ["-fno-omit-frame-pointer"]}
# Metrics, optionally with a value of --clock or --path.
METRICS = ["count", "count,wall", "count,wall loose", "count,wall probes"]
OPTIONS = {"loose": "--clock", "probes": "--path"}
# A neighbor on the same core makes the plain calls of a process half as slow again, and its other
# calls, too. Each figure must come from at least QUIET processes whose plain calls took at most
# LOUD times the minimum. Up to EXTRA times the rounds are tried for that, PAUSE seconds apart.
LOUD = 1.2
QUIET = 3
EXTRA = 4
PAUSE = 0.3


class Unavailable(Exception):
    """A peer is not installed, or does not work here."""


def fail(text):
    sys.exit(f"bench: {text}")


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def output(command):
    done = run(command)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Shape:
    """The arguments of the target; see target.c."""

    depth: int
    levels: int = 0
    paths: int = 1
    order: str = "cyclic"
    calls: int = 20_000
    rounds: int = 20
    threads: int = 1

    def arguments(self, way="tiny"):
        numbers = [self.depth, self.levels, self.paths, self.order, self.calls, self.rounds]
        return [str(n) for n in [*numbers, self.threads, way]]

    def all_calls(self):
        return (self.paths + self.calls * self.rounds) * self.threads

    def with_calls(self, calls, rounds):
        return dataclasses.replace(self, calls=calls, rounds=rounds)


@dataclasses.dataclass
class Times:
    """The minima of all rounds so far, in ns per call, and the maximum segment size in bytes."""

    flat: float = float("inf")
    rdtsc: float = float("inf")
    compared: float = float("inf")
    ordered: float = float("inf")
    plain: float = float("inf")
    tiny: float = float("inf")
    segment: int = -1
    plains: list = dataclasses.field(default_factory=list)

    NAMES = ["flat", "rdtsc", "compared", "ordered", "plain", "tiny"]

    def quiet(self, plain):
        """The number of processes whose plain calls took at most `LOUD` times `plain` ns."""
        return sum(p <= plain * LOUD for p in self.plains)

    def take(self, line):
        values = [float(word) for word in line.split()]
        if len(values) != len(self.NAMES) + 1:
            fail(f"not a line of the target: {line}")
        for name, value in zip(self.NAMES, values):
            setattr(self, name, min(value, getattr(self, name)))
        self.segment = max(self.segment, int(values[-1]))
        self.plains.append(values[self.NAMES.index("plain")])


def merged(ways):
    """The figures of several ways on one shape. The floor and plain are minima over all ways."""
    every = list(ways.values())
    plain = min(times.plain for times in every)
    flat = min(times.flat for times in every)
    floor, compared, ordered = (
        min(getattr(times, name) for times in every) - flat for name in ("rdtsc", "compared", "ordered")
    )
    added = {way: times.tiny - plain for way, times in ways.items()}
    return {
        "plain_ns": plain,
        "two_rdtsc_ns": floor,
        "floor_ns": {"loose": compared, "ordered": ordered},
        "added_ns": added,
        "ratio": {way: ns / floor for way, ns in added.items()},
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of a table: a shape under ipath with each of `metrics`.

    `others` are ways without ipath, each with a shape.
    """

    shape: Shape
    metrics: list = dataclasses.field(default_factory=lambda: ["count,wall"])
    pointers: str = "without"
    others: dict = dataclasses.field(default_factory=dict)

    def kind(self):
        """The key of cases that do the same without instrumentation."""
        return self.pointers, self.shape.levels, self.shape.paths, self.shape.order


class Bench:
    """Builds the target programs and runs them."""

    def __init__(self, ipath, source, scratch, rounds):
        self.ipath, self.scratch, self.rounds = ipath, scratch, rounds
        self.programs, self.unwinding = {}, {}
        known = output([ipath, "run", "--help"])
        has = lambda way: all(f"{OPTIONS[value]} <" in known for value in way.split()[1:])
        self.metrics = [way for way in METRICS if has(way)]
        # The minimum time of a plain call for each kind of case, in ns.
        self.plains = {}
        for pointers, flags in FLAGS.items():
            command = ["gcc", "-O2", "-pthread", *flags, source, "-o"]
            self.programs[pointers] = os.path.join(scratch, f"target-{pointers}")
            output([*command, self.programs[pointers]])
            # A separate program: libunwind replaces glibc's backtrace().
            program = os.path.join(scratch, f"unwinding-{pointers}")
            if run([*command, program, "-DLIBUNWIND", "-lunwind"]).returncode == 0:
                self.unwinding[pointers] = program

    def plain(self, pointers, shape, way, times):
        program = self.unwinding[pointers] if way == "unwind" else self.programs[pointers]
        times.take(output([program, *shape.arguments(way)]))

    def under_ipath(self, pointers, shape, metrics, times):
        profile = os.path.join(self.scratch, "profile.json")
        metrics, *values = metrics.split()
        # Only measured functions can be on a path of probes.
        callers = ["thread"] if "probes" in values else None
        functions = ",".join(["tiny", *(callers or [])])
        command = [self.ipath, "run", "-f", functions, "-m", metrics, "--no-tui"]
        command += ["--interval", "10m"]
        command += [option for value in values for option in (OPTIONS[value], value)]
        command += ["--max-paths", str(max(65536, 2 * shape.paths)), "-o", profile, "--"]
        command += [self.programs[pointers], *shape.arguments()]
        times.take(output(command).split("\n", 1)[0])
        with open(profile) as file:
            check(json.load(file), shape, callers)

    def measure(self, cases, rounds=None):
        """The times of each case, by way.

        All cases take turns in each round, so a burst of other load does not hit all rounds of one
        case.
        """
        found = [{way: Times() for way in [*case.metrics, *case.others]} for case in cases]
        rounds = rounds or self.rounds
        for turn in range(rounds * EXTRA):
            loud = False
            for case, ways in zip(cases, found):
                for way in case.metrics:
                    times = ways[way]
                    if turn < rounds or times.quiet(self.plains[case.kind()]) < min(QUIET, rounds):
                        self.under_ipath(case.pointers, case.shape, way, times)
                        least = self.plains.get(case.kind(), times.plain)
                        self.plains[case.kind()] = min(least, times.plain)
                        loud = loud or turn >= rounds
                for way, shape in case.others.items():
                    if turn < rounds:
                        self.plain(case.pointers, shape, way, ways[way])
            if turn >= rounds:
                if not loud:
                    break
                time.sleep(PAUSE)
        return found


def check(profile, shape, callers=None):
    """Fails unless the profile has every call on its true path: speed without that is worthless.

    If only measured functions are on paths, `callers` are those of tiny.
    """
    lost = {name: number for name, number in profile["losses"].items() if number}
    if lost:
        fail(f"{shape}: lost {lost}")
    names = [function["name"] for function in profile["functions"]]
    paths = [path for path in profile["paths"] if names[path["function"]] == "tiny"]
    if callers is None:
        is_odd = lambda path: len(path["stack"]) != shape.depth
        different = shape.paths
    else:
        frames = profile["frames"]
        is_odd = lambda path: [frames[at]["function"] for at in path["stack"]] != callers
        different = 1
    odd = [path for path in paths if is_odd(path) or not path["complete"]]
    counts = [p["metrics"]["count"] for p in paths]
    if odd or len(paths) != different or sum(counts) != shape.all_calls():
        fail(
            f"{shape}: expected {shape.all_calls()} calls on {different} complete paths, found "
            f"{sum(counts)} on {len(paths)}, {len(odd)} of them not complete or of another depth"
        )
    if shape.order == "cyclic" and max(counts) - min(counts) > shape.rounds * shape.threads:
        fail(f"{shape}: calls of the paths from {min(counts)} to {max(counts)}, expected the same")


def timed(command):
    """The duration of a command, in seconds."""
    before = time.monotonic()
    output(command)
    return time.monotonic() - before
