"""Runs the target, plain and under ipath, and checks that every call has been recorded."""

import dataclasses
import json
import os
import subprocess
import sys
import time

FLAGS = {"without": ["-fomit-frame-pointer"], "with": ["-fno-omit-frame-pointer"]}
# Metrics, and the value of --clock if it is not the default.
METRICS = ["count", "count,wall", "count,wall loose"]
# A neighbour on the same core makes the plain calls of a process slower by half, and its other
# calls as well. Each figure shall come from at least QUIET processes whose plain calls took at most
# LOUD times the least; up to EXTRA times the rounds are tried for that, PAUSE seconds apart.
LOUD = 1.2
QUIET = 3
EXTRA = 4
PAUSE = 0.3


class Unavailable(Exception):
    """A peer cannot be had, or does not work here."""


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
    """What the target does; see target.c."""

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
    """The least of all rounds so far, ns a call; and the most bytes of segment."""

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
        """How many processes ran about as fast as the fastest one of this kind."""
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
    """Figures of several ways on one shape: floor and plain are the least that any of them saw."""
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
    """A row of a table: a shape under ipath with each of `metrics`, and `others`: ways without
    ipath, each with a shape."""

    shape: Shape
    metrics: list = dataclasses.field(default_factory=lambda: ["count,wall"])
    pointers: str = "without"
    others: dict = dataclasses.field(default_factory=dict)

    def kind(self):
        """Cases of one kind do the same when nothing is instrumented."""
        return self.pointers, self.shape.levels, self.shape.paths, self.shape.order


class Bench:
    """The programs, and how to run them."""

    def __init__(self, ipath, source, scratch, rounds):
        self.ipath, self.scratch, self.rounds = ipath, scratch, rounds
        self.programs, self.unwinding = {}, {}
        has_clock = "--clock" in output([ipath, "run", "--help"])
        self.metrics = [way for way in METRICS if has_clock or " " not in way]
        # The least that a plain call of each kind of case has taken, ns.
        self.plains = {}
        for pointers, flags in FLAGS.items():
            command = ["gcc", "-O2", "-pthread", *flags, source, "-o"]
            self.programs[pointers] = os.path.join(scratch, f"target-{pointers}")
            output([*command, self.programs[pointers]])
            # A program of its own: libunwind brings a backtrace() in the place of glibc's.
            program = os.path.join(scratch, f"unwinding-{pointers}")
            if run([*command, program, "-DLIBUNWIND", "-lunwind"]).returncode == 0:
                self.unwinding[pointers] = program

    def plain(self, pointers, shape, way, times):
        program = self.unwinding[pointers] if way == "unwind" else self.programs[pointers]
        times.take(output([program, *shape.arguments(way)]))

    def under_ipath(self, pointers, shape, metrics, times):
        profile = os.path.join(self.scratch, "profile.json")
        metrics, *clock = metrics.split()
        command = [self.ipath, "run", "-f", "tiny", "-m", metrics, "--no-tui", "--interval", "10m"]
        command += [option for how in clock for option in ("--clock", how)]
        command += ["--max-paths", str(max(65536, 2 * shape.paths)), "-o", profile, "--"]
        command += [self.programs[pointers], *shape.arguments()]
        times.take(output(command).split("\n", 1)[0])
        with open(profile) as file:
            check(json.load(file), shape)

    def measure(self, cases, rounds=None):
        """The figures of each case. All cases take turns in each round, so that a burst of other
        work on the machine does not meet all rounds of one."""
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


def check(profile, shape):
    """The profile must hold every call on its true path: a fast wrong answer is none."""
    lost = {name: number for name, number in profile["losses"].items() if number}
    if lost:
        fail(f"{shape}: lost {lost}")
    paths = profile["paths"]
    odd = [p for p in paths if len(p["stack"]) != shape.depth or not p["complete"]]
    counts = [p["metrics"]["count"] for p in paths]
    if odd or len(paths) != shape.paths or sum(counts) != shape.all_calls():
        fail(
            f"{shape}: expected {shape.all_calls()} calls on {shape.paths} complete paths, found "
            f"{sum(counts)} on {len(paths)}, {len(odd)} of them not complete or of another depth"
        )
    if shape.order == "cyclic" and max(counts) - min(counts) > shape.rounds * shape.threads:
        fail(f"{shape}: calls of the paths from {min(counts)} to {max(counts)}, expected the same")


def timed(command):
    """Seconds that a command takes."""
    before = time.monotonic()
    output(command)
    return time.monotonic() - before
