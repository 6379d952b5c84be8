"""A fixed run of the interpreter on deep stacks: five hundred nested calls through C, generators in
generators, and exceptions through all of them.

Run as `python3.11 -I -S -B deep.py` with PYTHONHASHSEED=0; prints one line of checksums.
"""

import sys


class Lazy:
    """Attributes that exist only through __getattr__."""

    def __getattr__(self, name):
        if name.startswith("a"):
            return len(name)
        raise AttributeError(name)


lazy = Lazy()


def down(n):
    """Recursion through next() and map()."""
    if n == 0:
        return lazy.attribute
    return next(map(down, (n - 1,))) + 1


def dig(n):
    """An exception that passes through a `finally` block on each level."""
    if n == 0:
        return lazy.missing
    try:
        return next(map(dig, (n - 1,)))
    finally:
        if n % 10 == 0:
            lazy.also


def chain(n):
    """Each level catches the exception of the level below and raises its own."""
    try:
        if n == 0:
            return getattr(lazy, "nothing")
        return max([n - 1], key=chain)
    except (AttributeError, ValueError) as error:
        raise ValueError(n) from error


def leaves(depth, value=1):
    """Generators nested in generators, by `yield from` and through map()."""
    if depth == 0:
        yield lazy.any + value
    else:
        yield from leaves(depth - 1, 2 * value)
        yield from map(int, leaves(depth - 1, 2 * value + 1))


def thrown(n):
    """Nested generators. An exception thrown into the outermost one reaches the innermost."""
    try:
        if n == 0:
            while True:
                yield lazy.another
        yield from thrown(n - 1)
    finally:
        lazy.at_last


def caught(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        depth = 0
        while error is not None:
            depth += 1
            error = error.__cause__
        return depth


def main():
    sys.setrecursionlimit(5000)
    results = [down(500), caught(dig, 250), caught(chain, 40), sum(leaves(6))]
    generator = thrown(40)
    results += [next(generator), generator.send(1), caught(generator.throw, KeyError("in"))]
    closed = thrown(30)
    next(closed)
    closed.close()
    results.append(sum(sorted((lazy.a - n for n in range(30)), key=lambda n: n * lazy.ab)))
    print(results)


main()
