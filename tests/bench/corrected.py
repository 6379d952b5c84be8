"""Times that are corrected for what measuring takes, against those of the same functions without a probe."""

import json
import os

from measure import fail, output, run

CALLS, ROUNDS = 20_000, 10


def corrected(bench):
    print("\ncorrected: mean time of a call, ns, and that of a twin that has no probe; `nested` makes")
    print("four calls of another measured function. The least of the processes")
    program = os.path.join(bench.scratch, "corrected")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corrected.c")
    output(["gcc", "-O2", "-fno-tree-vectorize", source, "-o", program])
    found = {}
    for _ in range(bench.rounds):
        for name, (twin, mean) in once(bench, program).items():
            known = found.setdefault(name, (twin, mean))
            found[name] = min(known[0], twin), min(known[1], mean)
    rows = []
    print(f"{'':20}{'twin':>10}{'measured':>10}{'apart':>9}")
    for name, (twin, mean) in found.items():
        rows.append({"name": name, "twin_ns": twin, "corrected_ns": mean, "apart": mean / twin - 1})
        print(f"{name:20}{twin:10.1f}{mean:10.1f}{100 * (mean / twin - 1):8.1f} %")
    return rows


def once(bench, program):
    """What each twin takes and what is said of its function, in one process."""
    profile = os.path.join(bench.scratch, "corrected.json")
    pattern = "/^(nested_)?(chain|wide|stores|loads|divisions)_[0-9]+$/"
    command = [bench.ipath, "run", "-f", pattern, "--no-tui", "--interval", "10m", "-o", profile]
    done = run([*command, "--", program, str(CALLS), str(ROUNDS)])
    if done.returncode != 0:
        fail(f"corrected: exit status {done.returncode}: {done.stderr.strip()}")
    lines = (line.split() for line in done.stdout.splitlines())
    twins = {line[1]: float(line[2]) for line in lines if line[:1] == ["twin"]}
    with open(profile) as file:
        read = json.load(file)
    lost = {name: number for name, number in read["losses"].items() if number}
    if lost:
        fail(f"corrected: lost {lost}")
    # A function that a nested one calls has a path from there, and another one from `main`.
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
