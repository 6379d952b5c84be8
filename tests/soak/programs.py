"""Checks the paths of the tests' own programs against their code.

    tests/soak/programs.py [PREFIX]

Builds each C and C++ program of tests/programs whose name begins with PREFIX with the linkers bfd,
gold, lld and mold, alternately by gcc and clang. Programs that end by themselves with the same
output each time are run with all of their own functions counted. Their output must not change, and
no path may be contradicted. IPATH is the command to test; the default is target/release/ipath.
"""

import json
import os
import sys
import tempfile

import net
import rounds

FOLDER = os.path.join(rounds.ROOT, "tests/programs")
COMPILERS = {".c": ["gcc", "clang"], ".cc": ["g++", "clang++"]}


def steady(program, folder):
    """The exit status and output of a program. None unless it ends and prints the same twice."""
    plain = net.run([program], folder=folder)
    is_steady = plain is not None and plain[0] >= 0 and plain == net.run([program], folder=folder)
    return plain if is_steady else None


def failures_of(program, folder):
    """The failures of a program under ipath. None if the program cannot be tested."""
    plain = steady(program, folder)
    if plain is None:
        return None
    profile = os.path.join(folder, "p.json")
    command = [rounds.IPATH, "run", "--yes", "-m", "count", "-f", "p!*", "-o", profile, "--quiet", "--", program]
    ours = net.run(command, 120, folder)
    if ours != plain:
        return [f"{ours} instead of {plain}"]
    with open(profile) as file:
        return list(net.contradictions(json.load(file)))


def main():
    prefix = sys.argv[1] if len(sys.argv) > 1 else ""
    tried = failed = 0
    for number, name in enumerate(sorted(os.listdir(FOLDER))):
        compilers = COMPILERS.get(os.path.splitext(name)[1])
        if compilers is None or not name.startswith(prefix):
            continue
        for place, linker in enumerate(net.LINKERS):
            compiler = compilers[(number + place) % 2]
            level = net.LEVELS[(number + place) % len(net.LEVELS)]
            with tempfile.TemporaryDirectory(prefix="ipath-programs-") as folder:
                program = os.path.join(folder, "p")
                command = [compiler, level, "-w", f"-fuse-ld={linker}", "-pthread", "-o", program]
                built = net.run([*command, os.path.join(FOLDER, name), "-ldl", "-lm"], 60)
                found = failures_of(program, folder) if built is not None and built[0] == 0 else None
            if found is None:
                continue
            tried += 1
            for failure in found:
                print(f"{name}, {compiler} {level} {linker}: {failure}")
                failed += 1
    print(f"{tried} builds: " + ("passed" if failed == 0 else f"FAILED: {failed}"))
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
