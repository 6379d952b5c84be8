"""Measures the cost of calls of a tiny function under ipath, in several series. Compares it with
two reads of the time-stamp counter, libunwind, glibc's backtrace() and other tools. Look at the
multiples of two rdtsc of the same run: machines differ, and other load adds time in bursts.
Therefore the ways take turns, and each figure, including the floor, is the minimum of its rounds.
"""

import argparse
import datetime
import json
import platform
import tempfile

import cold
import corrected
import edges
import exports
import inside
import metrics
import peers
import profiles
import programs
import sampled
import series
import throttle
import verdict
import view
from measure import Bench

SERIES = {
    "depths": series.depths,
    "threads": series.threads,
    "cycles": series.cycles,
    "paths": series.paths,
    "chain": series.chain,
    "cold": cold.cold,
    "tails": series.tails,
    "metrics": metrics.metrics,
    "corrected": corrected.corrected,
    "edges": edges.edges,
    "inside": inside.whole,
    "select": series.select,
    "peers": peers.peers,
    "programs": programs.programs,
    "suggest": sampled.suggest,
    "view": view.view,
    "exports": exports.exports,
    "profiles": profiles.profiles,
    "throttle": throttle.throttle,
}


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0]}, {len(names)} processors"


def main():
    parser = argparse.ArgumentParser(
        prog="tests/bench/run",
        description=__doc__,
        epilog="IPATH_BIN names another ipath than the release build.",
    )
    parser.add_argument("--ipath", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--source", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    parser.add_argument("--only", action="append", choices=SERIES, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each way")
    parser.add_argument("--peers", action="store_true", help="install the peers first (root)")
    arguments = parser.parse_args()
    if arguments.peers:
        peers.install()
    figures = {
        "processor": processor(),
        "kernel": platform.release(),
        "date": datetime.date.today().isoformat(),
    }
    print(f"{figures['processor']}; Linux {figures['kernel']}; {figures['date']}")
    print(f"ns of processor time a call; rows and ways take turns; the least of {arguments.rounds}")
    print("processes (peers, paths: 3), or of more until some were undisturbed, each of several")
    print("rounds, for two rdtsc as well")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments.ipath, arguments.source, scratch, arguments.rounds)
        for name, measure in SERIES.items():
            if not arguments.only or name in arguments.only:
                figures[name] = measure(bench)
    figures["verdicts"] = verdict.verdicts(figures)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=1)


main()
