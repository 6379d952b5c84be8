"""Times corrected for the measurement overhead, against the same functions without a probe."""

import json
import os

from measure import fail, output, run

CALLS, ROUNDS = 5_000, 10
CLOCKS = ["ordered", "loose"]
CALLERS = ["dependent", "independent"]


def corrected(bench):
    print("\ncorrected: mean time of a call without a probe, ns, and how far the measured one is from it, by")
    print("how exits read the clock (--clock). Each call needs the result of the one before (dependent), or not;")
    print("`nested` makes four calls of another measured function. The least of the processes")
    program = os.path.join(bench.scratch, "corrected")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corrected.c")
    output(["gcc", "-O2", "-fno-tree-vectorize", source, "-o", program])
    found = {}
    for _ in range(bench.rounds):
        for callers in CALLERS:
            for clock in CLOCKS:
                for name, (twin, mean) in once(bench, program, clock, callers).items():
                    row = found.setdefault((name, callers), {})
                    row["twin"] = min(twin, row.get("twin", twin))
                    row[clock] = min(mean, row.get(clock, mean))
    rows = []
    print(f"{'':20}" + "".join(f"{callers:>12}{'':18}" for callers in CALLERS))
    print(f"{'':20}" + f"{'none':>8}{'ordered':>11}{'loose':>11}" * len(CALLERS))
    for name in dict.fromkeys(name for name, _ in found):
        line = f"{name:20}"
        for callers in CALLERS:
            row = found[name, callers]
            apart = {clock: row[clock] / row["twin"] - 1 for clock in CLOCKS}
            rows.append({"name": name, "callers": callers, "twin_ns": row["twin"], "apart": apart})
            line += f"{row['twin']:8.1f}" + "".join(f"{100 * apart[clock]:9.1f} %" for clock in CLOCKS)
        print(line)
    return rows


def once(bench, program, clock, callers):
    """By function: ns per call of its unprobed twin, and its measured mean, in one process."""
    profile = os.path.join(bench.scratch, "corrected.json")
    pattern = "/^(nested_)?(chain|wide|stores|loads|divisions|miss|branches)_[0-9]+$/"
    command = [bench.ipath, "run", "-f", pattern, "--clock", clock, "--no-tui", "--interval", "10m", "-o", profile]
    done = run([*command, "--", program, str(CALLS), str(ROUNDS), callers])
    if done.returncode != 0:
        fail(f"corrected: exit status {done.returncode}: {done.stderr.strip()}")
    lines = (line.split() for line in done.stdout.splitlines())
    twins = {line[1]: float(line[2]) for line in lines if line[:1] == ["twin"]}
    with open(profile) as file:
        read = json.load(file)
    lost = {name: number for name, number in read["losses"].items() if number}
    if lost:
        fail(f"corrected: lost {lost}")
    # A function that a nested one calls has a path from there, and another path from `main`.
    means = {}
    for path in read["paths"]:
        name = read["functions"][path["function"]]["name"]
        callers = [read["frames"][frame]["function"] for frame in path["stack"]]
        if not any(caller.startswith("nested_") for caller in callers if caller):
            wall, count = path["metrics"]["wall"]["sum"], path["metrics"]["count"]
            means[name] = means.get(name, 0) + wall / count
    if means.keys() != twins.keys():
        fail(f"corrected: {sorted(means)} are measured, and not {sorted(twins)}")
    return {name: (twins[name], means[name]) for name in twins}
