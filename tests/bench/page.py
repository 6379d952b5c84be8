"""Writes the figures in docs/performance.md: the cost of a call and of attaching, all from one run of
tests/bench/run on one machine and one commit. It refuses if there are changes that are not committed,
and there is no way to renew a part. With --check it measures nothing: the exit status is 1 if what is
measured has changed since the commit of the page.
"""

import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(ROOT, "docs", "performance.md")
BEGIN, END = "<!-- Figures, by tests/bench/page. -->", "<!-- End of the figures. -->"
# The series of the page.
SERIES = ["depths", "threads", "cycles", "paths", "chain", "cold", "tails", "metrics", "corrected", "select"]
SERIES += ["peers", "programs"]
# The cost of a call depends on these.
MEASURED = ["rtlib", "patcher/src/emit", "patcher/src/isa", "tests/bench"]


def fail(text):
    sys.exit(f"page: {text}")


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def parts(page):
    """The page before, in, and behind the figures."""
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
    """What one run prints, as it is printed."""
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
