"""Prints the licenses of ipath and of all packages that are linked into it.

usage: python3 packaging/licences.py TARGET
"""

import json
import os
import re
import subprocess
import sys

LICENCE = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def linked(metadata, target):
    """Return the packages that are linked into the program, sorted by name and version.

    Excludes dependencies for builds and tests, and optional ones that are not enabled.
    """
    # Not from cargo metadata: it includes optional packages that no feature enables.
    command = ["cargo", "tree", "--locked", "--package=ipath", f"--target={target}", "--edges=normal,no-proc-macro"]
    command += ["--prefix=none", "--format={p}"]
    tree = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    # A line is `NAME vVERSION`, with a suffix for packages that are not from a registry.
    named = {tuple(line.split()[:2]) for line in tree.splitlines()}
    own = set(metadata["workspace_members"])
    outer = [p for p in metadata["packages"] if p["id"] not in own]
    found = [p for p in outer if (p["name"], "v" + p["version"]) in named]
    return sorted(found, key=lambda p: (p["name"], p["version"]))


def texts(package):
    """Yields the license texts in the source folder of a package."""
    folder = os.path.dirname(package["manifest_path"])
    names = sorted(name for name in os.listdir(folder) if LICENCE.match(name))
    files = [os.path.join(folder, name) for name in names]
    for file in filter(os.path.isfile, files):
        with open(file, encoding="utf-8", errors="replace") as stream:
            yield stream.read().strip()


def main():
    target = sys.argv[1]
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print("ipath: MIT OR Apache-2.0\n")
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        with open(name, encoding="utf-8") as stream:
            print(stream.read().strip() + "\n")
    by_text = {}
    print("It contains these packages, each under the licence named; the texts follow.\n")
    for package in linked(metadata, target):
        title = f"{package['name']} {package['version']}"
        print(f"  {title}: {package['license']}  {package['repository'] or ''}".rstrip())
        for text in texts(package):
            by_text.setdefault(text, []).append(title)
    print("  The Rust standard library: MIT OR Apache-2.0  https://github.com/rust-lang/rust")
    print("  The GNU C library: LGPL-2.1-or-later  https://www.gnu.org/software/libc/")
    for text, titles in by_text.items():
        print(f"\n{'-' * 78}\n{', '.join(titles)}\n\n{text}")


main()
