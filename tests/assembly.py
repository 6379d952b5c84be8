#!/usr/bin/env python3
"""Counts the lines of assembly with a comment.

Reads the Rust files in folders named `arch`. A line of assembly is a line of a string in a macro
that starts with a mnemonic. A single word in parentheses is not: it is the register of an operand.
The comment must be on the same line.

Prints the lines, the lines with a comment, and their share for each file and in total. Fails if the
total share is below SHARE.

    tests/assembly.py [--least SHARE] [--missing]
"""

import argparse
import pathlib
import re
import sys

# Rust macros whose strings are not assembly.
OTHERS = {"assert", "assert_eq", "assert_ne", "matches", "panic", "format", "println", "offset_of"}
CALL = re.compile(r"\b(\w+)!\s*[\w$]*\s*[({\[]")
MNEMONIC = re.compile(r"(?:[\w$]+:\s*)?[a-z][a-z0-9]+(?:\s|$)")
FOLDERS = {".git", "target"}


def macros(text):
    """Yields the start and the end of each macro call and definition that is not nested."""
    at = 0
    while found := CALL.search(text, at):
        at = found.end()
        line = text.rfind("\n", 0, found.start()) + 1
        if found[1] in OTHERS or text[line : found.start()].lstrip().startswith("//"):
            continue
        end = closing(text, at)
        yield at, end
        at = end


def closing(text, at):
    """The offset after the bracket that closes the bracket before `at`."""
    depth = 1
    while depth and at < len(text):
        if text.startswith("//", at):
            at = text.find("\n", at)
        elif text[at] == '"':
            at = string_end(text, at)
            continue
        else:
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(text[at], 0)
        at += 1
    return at


def string_end(text, at):
    """The offset after the string that starts at `at`."""
    at += 1
    while text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1


def strings(text, start, end):
    """Yields the start and the end of each string in a range, except in comments and attributes."""
    at = start
    while at < end:
        if text.startswith("//", at) or text.startswith("#[", at):
            at = text.find("\n", at)
        elif text[at] == '"':
            after = string_end(text, at)
            yield at + 1, after - 1
            at = after
            continue
        at += 1


def assembly(text):
    """Yields the number and the code of each line of assembly, and True if it has a comment."""
    for start, end in macros(text):
        for first, after in strings(text, start, end):
            at = first
            for line in text[first:after].split("\n"):
                code = line.split("//")[0].strip()
                rest = text[at : text.find("\n", at)]
                is_register = text[first - 2] == "(" and code.isalnum()
                if MNEMONIC.match(code) and not is_register:
                    yield text.count("\n", 0, at) + 1, code, "//" in rest
                at += len(line) + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--least", type=float, default=0, help="share of lines, in percent")
    parser.add_argument("--missing", action="store_true", help="print lines without a comment")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    total = explained = 0
    for path in sorted(root.rglob("*.rs")):
        parts = path.relative_to(root).parts
        if "arch" not in parts or FOLDERS & set(parts):
            continue
        lines = list(assembly(path.read_text()))
        if not lines:
            continue
        have = sum(has for _, _, has in lines)
        total, explained = total + len(lines), explained + have
        print(f"{len(lines):5} {have:5} {100 * have / len(lines):5.1f} %  {'/'.join(parts)}")
        for number, code, has in lines:
            if options.missing and not has:
                print(f"      {number}: {code}")
    share = 100 * explained / max(total, 1)
    print(f"{total:5} {explained:5} {share:5.1f} %")
    if not total or share < options.least:
        sys.exit(f"less than {options.least:g} % of the lines have a comment")


if __name__ == "__main__":
    main()
