"""Compares the cost of a call between this ipath and that of another commit, on this machine.

The two builds take turns. A turn runs each series once with each build; the first build alternates.
So other load on the machine affects both. Each row shows the median over the turns of the ratio of
the added times, this ipath to the other, and the minimum and maximum ratio of a turn. A row is worse
if its median is above 1.03 and there are at least 5 turns, all with a ratio above 1. Chance does
that to 1 row in 32 (5 turns), so repeat such a row alone with --only. Exit status 1 if a row is
worse.
"""

import argparse
import contextlib
import io
import json
import statistics
import sys
import tempfile

import cold
import metrics
import series
from measure import Bench

SERIES = {
    "depths": series.depths,
    "cycles": series.cycles,
    "paths": series.paths,
    "chain": series.chain,
    "threads": series.threads,
    "cold": cold.cold,
    "tails": series.tails,
    "metrics": metrics.metrics,
}
DEFAULT = ["depths", "cycles", "paths", "metrics"]
LIMIT = 1.03
ENOUGH = 5
# Columns that contain measurements and therefore do not identify a row.
MEASURED = {"plain_ns", "two_rdtsc_ns", "added_ns", "ratio", "more_ns", "refused"}
MEASURED |= {"segment_bytes_per_path", "floor_ns"}
# Ways of walking the stack that do not use ipath.
OTHERS = {"backtrace", "unwind"}


def named(name, rows):
    """The added ns per call, by the name of the row and the metrics."""
    found = {}
    for row in rows:
        parts = [f"{key.replace('_', ' ')} {row[key]}" for key in row if key not in MEASURED]
        for way, added in row["added_ns"].items():
            if way not in OTHERS:
                found[", ".join([name, *parts, way])] = added
    return found


def measured(bench, names):
    """The figures of the series, without their output, which covers only one turn."""
    found = {}
    for name in names:
        with contextlib.redirect_stdout(io.StringIO()):
            rows = SERIES[name](bench)
        found |= named(name, rows)
    return found


def verdict(ratios):
    """`ok`, `WORSE` or `unclear`, from the ratios of a row in all turns."""
    median = statistics.median(ratios)
    if median <= LIMIT:
        return "ok"
    return "WORSE" if min(ratios) > 1 and len(ratios) >= ENOUGH else "unclear"


def main():
    parser = argparse.ArgumentParser(
        prog="tests/bench/against",
        usage="tests/bench/against REV [--only SERIES] [--turns N] [--rounds N] [--json FILE]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for hidden in ["--old", "--new", "--source", "--commit"]:
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=SERIES, help="may be repeated")
    parser.add_argument("--turns", type=int, default=7, help="default 7")
    parser.add_argument("--rounds", type=int, default=3, help="processes a turn; default 3")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all turns here too")
    arguments = parser.parse_args()
    if arguments.old is None:
        parser.error("REV: the commit to compare with")
    names = arguments.only or DEFAULT
    builds = {"old": arguments.old, "new": arguments.new}
    turns = {"old": [], "new": []}
    with tempfile.TemporaryDirectory() as scratch:
        benches = {
            which: Bench(path, arguments.source, scratch, arguments.rounds)
            for which, path in builds.items()
        }
        for turn in range(arguments.turns):
            for which in sorted(builds, reverse=turn % 2 == 0):
                turns[which].append(measured(benches[which], names))
            print(f"turn {turn + 1} of {arguments.turns}", file=sys.stderr, flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(turns, file, indent=1)
    sys.exit(shown(turns, arguments.commit))


def shown(turns, commit):
    """Prints the rows and returns the exit status."""
    print(f"added ns a call: {commit}, this one; the ratio's median, least and largest of the turns")
    words = []
    for row in turns["new"][0]:
        old, new = ([turn.get(row) for turn in turns[which]] for which in ("old", "new"))
        if None in old or None in new:
            print(f"{row:64}only one of them measures this")
            continue
        ratios = [after / before for before, after in zip(old, new)]
        word = verdict(ratios)
        words.append(word)
        print(f"{row:64}{min(old):8.1f}{min(new):8.1f}{statistics.median(ratios):8.2f}", end="")
        print(f"{min(ratios):7.2f}{max(ratios):7.2f}  {word}")
    print(f"{len(words)} rows, {words.count('WORSE')} worse, {words.count('unclear')} unclear")
    return 1 if "WORSE" in words else 0


main()
