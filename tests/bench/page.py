"""Writes the figures in docs/reference/performance-figures.md: the cost of a call and of attaching. All
figures come from one run of tests/bench/run on one machine and one commit. So it refuses uncommitted
changes and cannot update only some figures. With --check it measures nothing: the exit status is 1
if the measured code has changed since the commit of the page.
"""

import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(ROOT, "docs", "reference", "performance-figures.md")
BEGIN, END = "<!-- Figures, by tests/bench/page. -->", "<!-- End of the figures. -->"
# The series shown on the page.
SERIES = ["depths", "threads", "cycles", "paths", "chain", "cold", "tails", "metrics", "corrected", "select"]
SERIES += ["peers", "programs"]
# The cost of a call depends on these folders.
MEASURED = ["rtlib", "patcher/src/emit", "patcher/src/isa", "tests/bench"]


def fail(text):
    sys.exit(f"page: {text}")


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def parts(page):
    """The parts of the page before, in, and after the figures."""
    before, begin, rest = page.partition(BEGIN)
    figures, end, behind = rest.partition(END)
    if not begin or not end:
        fail(f"{PAGE} has no place for figures: {BEGIN} ... {END}")
    return before, figures, behind


def check(figures):
    found = re.search(r"^commit ([0-9a-f]{7,40})$", figures, re.MULTILINE)
    if not found:
        fail("the page names no commit")
    later = git("log", "--format=%h %s", f"{found.group(1)}..HEAD", "--", *MEASURED)
    if later:
        fail(f"older than what it measures:\n{later}")
    print(f"page: nothing that it measures has changed since {found.group(1)}")


def measured(options):
    """The output of one run. Also prints it while it runs."""
    command = [os.path.join(HERE, "run"), *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if run.returncode != 0:
        fail(f"{command[0]}: exit status {run.returncode}: the page stays as it is")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the page is up to date")
    parser.add_argument("--rounds", type=int, help="processes of each way; see tests/bench/run")
    parser.add_argument("--peers", action="store_true", help="install the peers first (root)")
    arguments = parser.parse_args()
    with open(PAGE) as file:
        before, figures, behind = parts(file.read())
    if arguments.check:
        return check(figures)
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        fail(f"not committed:\n{changed}\nhint: figures are those of a commit")
    commit = git("rev-parse", "--short=12", "HEAD")
    options = [f"--only={series}" for series in SERIES]
    options += ["--peers"] if arguments.peers else []
    if arguments.rounds:
        options += ["--rounds", str(arguments.rounds)]
    text = f"{BEGIN}\n\n```\ncommit {commit}\n{measured(options).strip()}\n```\n\n{END}"
    with open(PAGE, "w") as file:
        file.write(before + text + behind)
    return None


main()
