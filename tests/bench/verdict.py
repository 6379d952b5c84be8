"""Compares the figures with the promises of ipath. A miss is printed but is not a failure."""

# Limits of times relative to the floor of the same run: a timer by path with a second reading of
# the clock that waits.
ORDERED = 1.25
# Limits as multiples of two rdtsc, by depth.
LOOSE = {5: 1.25, 20: 1.5, 100: 2.9}
COUNT = {5: 0.6, 20: 1.1, 100: 4.2}
# Code with frame pointers relative to code without.
FRAME_POINTERS = 1.1
CYCLE_OF_8 = 2.5
RANDOM_PATHS = 16
BYTES_PER_PATH = 256
# A call that leaves by a tail call relative to one that returns; and one more call of the callee.
TAIL_CALL = 1.25
CALLEE = 0.6
# The limit of the cost that metrics add to the same call without them, in ns.
MORE = {
    "cpu and blocked": 12,
    "a value at entry": 3,
    "a value at exit": 3,
    "a value at entry, without times": 3,
}
# The limit of the difference between corrected times and those of the same functions without a
# probe, as a fraction.
APART = 0.02
# Shorter calls may differ by a larger fraction of their time, in ns.
SHORTEST = 20
# The limit of the cost of `suggest`, as a fraction of the program's work.
SUGGEST = 0.02
# Limits of the live view with 65,536 paths: fraction of a core, MB, and seconds to the first
# picture of a large program.
VIEW = {"cpu": 0.03, "resident_mb": 150, "first_picture_s": 0.3}
# The limit of the difference between two threads and one, as a fraction.
THREADS_APART = 0.05

# Limits of counting inside functions: the mean over the loops or programs, and each of them, as
# multiples of the plain ones.
INSIDE = {"edges": 1.08, "paths": 1.15}
INSIDE_EACH = 1.3


def bounds(figures):
    """Yields (what, found, bound, unit) for each promise about the series in `figures`."""
    for row in figures.get("depths", []):
        pointers = "with" if row["frame_pointers"] else "without"
        depth = row["depth"]
        for way, most in {"count": COUNT, "count,wall loose": LOOSE}.items():
            yield f"{way}, depth {depth}, {pointers} frame pointers", row["ratio"][way], most[depth], "x"
        ordered = row["added_ns"]["count,wall"] / row["floor_ns"]["ordered"]
        what = f"count,wall, depth {depth}, {pointers} frame pointers"
        yield what, ordered, ORDERED, "x the ordered floor"
    walls = {
        (row["depth"], row["frame_pointers"]): row["ratio"]["count,wall"]
        for row in figures.get("depths", [])
    }
    for depth in sorted({depth for depth, _ in walls}):
        if (depth, True) in walls and (depth, False) in walls:
            what = f"count,wall, depth {depth}, with frame pointers against without"
            yield what, walls[depth, True] / walls[depth, False], FRAME_POINTERS, "x"
    for row in figures.get("cycles", []):
        if row["paths"] == 8:
            what = f"count,wall, 8 paths in a cycle, parting at the {row['part']} frames"
            yield what, row["ratio"]["count,wall"], CYCLE_OF_8, "x"
    for row in figures.get("paths", []):
        if row["paths"] == 100_000:
            what = "count,wall, 100,000 paths in random order"
            yield what, row["ratio"]["count,wall"], RANDOM_PATHS, "x"
            size = row["segment_bytes_per_path"]
            if size is not None:
                yield "segment, 100,000 paths", size, BYTES_PER_PATH, " bytes a path"
    for row in figures.get("tails", []):
        what = "count,wall, a tail call against a return"
        yield what, row["ratio"]["tail"] / row["ratio"]["returns"], TAIL_CALL, "x"
        yield "a call of a function probed for tail calls", row["ratio"]["callee"], CALLEE, "x"
    for row in figures.get("metrics", []):
        for what, ns in row["more_ns"].items():
            yield f"{what} adds", ns, MORE[what], " ns"
    for row in figures.get("corrected", []):
        if row["callers"] == "dependent" and row["twin_ns"] >= SHORTEST:
            what = f"corrected time of {row['name']}"
            yield what, 100 * abs(row["apart"]["ordered"]), 100 * APART, " % apart"
    for series, name in {"edges": "loop", "inside": "program"}.items():
        rows = figures.get(series, [])
        for way, most in INSIDE.items():
            for row in rows:
                yield f"{way} of {row[name]}", row["ratio"][way], INSIDE_EACH, "x"
            if rows:
                mean = sum(row["ratio"][way] for row in rows) / len(rows)
                yield f"{way}, mean of the {name}s", mean, most, "x"
    for row in figures.get("suggest", []):
        yield f"suggest costs {row['program']}", 100 * row["cost"], 100 * SUGGEST, " %"
    for row in figures.get("view", []):
        yield "the view's processor time", 100 * row["cpu"], 100 * VIEW["cpu"], " % of a core"
        yield "the view's memory", row["resident_mb"], VIEW["resident_mb"], " MB"
        first, most = row["first_picture_s"], VIEW["first_picture_s"]
        yield "the view's first picture", 1000 * first, 1000 * most, " ms"
    added = {row["threads"]: row["added_ns"]["count,wall"] for row in figures.get("threads", [])}
    if 2 in added:
        apart = abs(added[2] / added[1] - 1)
        yield "two threads against one", 100 * apart, 100 * THREADS_APART, " % apart"


def verdicts(figures):
    found = []
    print("\nverdict; multiples of two rdtsc where no unit is given")
    for what, value, bound, unit in bounds(figures):
        word = "met" if value <= bound else "MISSED"
        found.append({"what": what, "value": value, "bound": bound, "met": value <= bound})
        print(f"{what:65}{value:8.2f}{unit}, at most {bound:g}: {word}")
    return found
