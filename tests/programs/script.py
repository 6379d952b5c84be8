"""A fixed run of the interpreter: attribute lookups on many paths, recursion, no randomness.

Run as `python3.11 -I -S -B script.py` with PYTHONHASHSEED=0; prints one line of checksums.
"""


class Node:
    __slots__ = ("left", "right", "value")

    def __init__(self, left, right, value):
        self.left = left
        self.right = right
        self.value = value

    def total(self):
        own = getattr(self, "value")
        for side in ("left", "right"):
            child = getattr(self, side)
            if child is not None:
                own += child.total()
        return own

    def __lt__(self, other):
        return getattr(self, "value") < getattr(other, "value")


class Lazy:
    """Attributes that exist only through __getattr__ and properties."""

    @property
    def twice(self):
        return 2 * getattr(self, "once")

    def __getattr__(self, name):
        if name == "once":
            return len(name)
        if name == "deep":
            return getattr(self, "deeper") + 1
        if name == "deeper":
            return getattr(self, "once")
        raise AttributeError(name)


class Plus:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return Plus(getattr(self, "n") + getattr(other, "n", 0))

    def __eq__(self, other):
        return getattr(self, "n") == getattr(other, "n")

    def __hash__(self):
        return hash(getattr(self, "n"))


def tree(depth, value=1):
    if depth == 0:
        return None
    return Node(tree(depth - 1, 2 * value), tree(depth - 1, 2 * value + 1), value)


def down(n, lazy):
    """Recursion of interpreter frames that the C stack sees: each level goes through map()."""
    if n == 0:
        return getattr(lazy, "twice")
    return sum(map(lambda k: down(k, lazy), [n - 1])) + getattr(lazy, "deep", 0)


def even(n, lazy):
    return getattr(lazy, "once") if n == 0 else max([n], key=lambda k: odd(k - 1, lazy))


def odd(n, lazy):
    return getattr(lazy, "twice") if n == 0 else min([n], key=lambda k: even(k - 1, lazy))


def numbers(nodes):
    for node in nodes:
        yield getattr(node, "value")


def main():
    lazy = Lazy()
    root = tree(5)
    nodes = [Node(None, None, (17 * i) % 41) for i in range(48)]
    results = [root.total(), [n.value for n in sorted(nodes)][:4]]
    results.append(sum(down(n, lazy) for n in range(9)))
    results.append([even(n, lazy) + odd(n, lazy) for n in range(11)])
    results.append(sum(numbers(nodes)) + sum(map(lambda n: getattr(n, "value"), nodes)))
    results.append(sum((Plus(i) for i in range(20)), Plus(0)).n)
    results.append(len({Plus(i % 7) for i in range(40)}))
    missing = [getattr(lazy, name, "none") for name in ("once", "absent", "deep")]
    results.append(missing)
    results.append(sorted(nodes, key=lambda n: getattr(n, "value"))[-1].value)
    print(results)


main()
