"""The cost of counting the edges or the paths of the ten hottest functions of whole programs, by
ipath, and that of gcov's instrumentation of all functions."""

import glob
import json
import os
import re
import time

from measure import Unavailable, fail, output, run

HOTTEST = 10
ROUNDS = 3
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SQL = """
create table t(a integer primary key, b text, c real, d int);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000)
    insert into t select i, hex(i * 7919 % 100003), i * 0.5, i % 97 from n;
create index tb on t(b);
select count(*), sum(c), max(b) from t where b like '3%1';
select d, count(*), avg(c) from t group by d order by 3 desc limit 5;
select count(*) from t x join t y on x.b = y.b where x.d = 3;
update t set c = c + 1 where d % 2 = 0;
delete from t where d > 90;
select sum(length(b)), sum(c) from t;
"""


def folder(name):
    """The folder of a project's sources, which tests/set-up gets."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    found = glob.glob(os.path.join(target, "tools", "sources", f"{name}-*"))
    if not found:
        raise Unavailable(f"the sources in {name} are missing; tests/set-up gets them")
    return found[0]


def programs(bench):
    """For each program its sources and flags, and its arguments."""
    text = os.path.join(bench.scratch, "text")
    with open(text, "wb") as file:
        for name in sorted(glob.glob(os.path.join(ROOT, "*", "**", "*.rs"), recursive=True)):
            if os.sep + "target" + os.sep not in name and file.tell() < 12 << 20:
                with open(name, "rb") as source:
                    file.write(source.read())
    statements = os.path.join(bench.scratch, "statements.sql")
    with open(statements, "w") as file:
        file.write(SQL)
    here = os.path.dirname(os.path.abspath(__file__))
    zlib = os.path.join(folder("libz-sys"), "src", "zlib")
    parts = "adler32 compress crc32 deflate inffast inflate inftrees trees uncompr zutil".split()
    zlib_sources = [os.path.join(zlib, f"{part}.c") for part in parts]
    (bzip2,) = glob.glob(os.path.join(folder("bzip2-sys"), "bzip2-*"))
    parts = "blocksort huffman crctable randtable compress decompress bzlib bzip2".split()
    bzip2_sources = [os.path.join(bzip2, f"{part}.c") for part in parts]
    sqlite = os.path.join(folder("libsqlite3-sys"), "sqlite3")
    driver = os.path.join(ROOT, "tests", "programs", "drive_sqlite.c")
    flags = ["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"]
    sqlite_sources = [driver, os.path.join(sqlite, "sqlite3.c"), *flags, "-lm"]
    return {
        "zlib": ([f"-I{zlib}", os.path.join(here, "deflates.c"), *zlib_sources], [text]),
        "bzip2": (bzip2_sources, ["-9", "-k", "-c", text]),
        "sqlite": ([f"-I{sqlite}", *sqlite_sources], [statements]),
    }


def hottest(bench, command):
    """The functions of a program with the most samples."""
    data = os.path.join(bench.scratch, "perf.data")
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-o", data, *command]
    if run(["sh", "-c", 'exec "$@" > /dev/null', "sh", *record]).returncode != 0:
        raise Unavailable("perf cannot sample")
    name = os.path.basename(command[0])
    report = ["perf", "report", "-i", data, "--no-children", "--stdio", "-F", "overhead,symbol"]
    report = output([*report, "--dsos", name])
    return re.findall(r"^\s*[\d.]+%\s+\[\.\]\s+(\S+)", report, re.M)[:HOTTEST]


def whole(bench):
    print(f"\ninside: the {HOTTEST} hottest functions of whole programs; seconds, multiples of the plain program")
    ways = ["gcov", "edges", "paths"]
    print(f"{'program':>12}{'plain':>8}" + "".join(f"{way:>16}" for way in ways))
    try:
        return [row(bench, name, ways, *parts) for name, parts in programs(bench).items()]
    except Unavailable as reason:
        print(f"not measured: {reason}")
        return []


def row(bench, name, ways, sources, arguments):
    """The figures of one program."""
    commands = {}
    for way, flags in {"plain": [], "gcov": ["--coverage"]}.items():
        program = os.path.join(bench.scratch, f"{name}-{way}")
        output(["gcc", "-O2", "-g", *flags, *sources, "-o", program])
        commands[way] = [program, *arguments]
    functions = hottest(bench, commands["plain"])
    found, counted = {}, {}
    for _ in range(ROUNDS):
        for way in ["plain", *ways]:
            seconds, printed, counted[way] = once(bench, commands, way, functions)
            expected = found.setdefault("printed", printed)
            if printed != expected:
                fail(f"{name} prints something else with {way}")
            found[way] = min(seconds, found.get(way, seconds))
    ratio = {way: found[way] / found["plain"] for way in ways}
    cells = "".join(f"{found[way]:8.2f} {ratio[way]:6.2f}x" for way in ways)
    refused = {way: HOTTEST - counted[way] for way in ("edges", "paths") if counted[way] < HOTTEST}
    notes = "".join(f"  {way}: {number} refused" for way, number in refused.items())
    print(f"{name:>12}{found['plain']:8.2f}{cells}{notes}")
    return {
        "program": name,
        "functions": functions,
        "refused": refused,
        "plain_s": found["plain"],
        "ratio": ratio,
    }


def once(bench, commands, way, functions):
    """The time that the program has run, in seconds, its output, and how many functions were
    counted inside."""
    if way in commands:
        start = time.monotonic()
        done = run_bytes(commands[way])
        return time.monotonic() - start, done, 0
    profile = os.path.join(bench.scratch, "inside.json")
    names = [argument for function in functions for argument in (f"--{way}", function)]
    command = [bench.ipath, "run", "-q", "--no-tui", "--interval", "10m", "-o", profile, *names, "--"]
    done = run_bytes([*command, *commands["plain"]])
    with open(profile) as file:
        measured = json.load(file)
    return measured["session"]["elapsed_ns"] / 1e9, done, len(measured["inside"])


def run_bytes(command):
    """The output of a program, which may be no text."""
    done = run(["sh", "-c", 'exec "$@" | cksum', "sh", *command])
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout
