"""Real programs. Each is started, does a given number of operations as often as required, and
reports the number of operations done. `functions` are the functions to measure: (file, name)."""

import contextlib
import os
import select
import shutil
import socket
import subprocess
import time

import tools
from measure import Unavailable, run
from tools import started, wait_for

LIBRARIES = "/usr/lib/x86_64-linux-gnu"


class Redis:
    """SET by redis-benchmark. Measures jemalloc's malloc, and epoll_wait."""

    name = "redis-server"
    functions = [
        (f"{LIBRARIES}/libjemalloc.so.2", "malloc"),
        (f"{LIBRARIES}/libc.so.6", "epoll_wait"),
    ]
    work = 200_000
    is_endless = False

    @contextlib.contextmanager
    def running(self, scratch, prefix):
        path = os.path.join(scratch, "socket")
        command = [*prefix, program("redis-server"), "--port", "0", "--unixsocket", path]
        command += ["--dir", scratch, "--save", "", "--appendonly", "no"]
        with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            wait_for("redis-server", lambda: answers(path), server)
            yield [of(server.pid, "redis")], *counted(lambda count: self.set(path, count))
            run(["redis-cli", "-s", path, "SHUTDOWN", "NOSAVE"])

    def set(self, path, count):
        done = run([program("redis-benchmark"), "-s", path, "-t", "set", "-n", str(count), "-q"])
        if done.returncode != 0 or "requests per second" not in done.stdout:
            raise Unavailable(f"redis-benchmark: {done.stderr.strip()}")


class Shell:
    """A program that reads commands from its standard input and reports when they are done.

    `prepare` is the first command, and `text` returns the command for a number of operations.
    """

    is_endless = False

    @contextlib.contextmanager
    def running(self, scratch, prefix):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with started([*prefix, *self.command()], text=True, cwd=scratch, **pipes) as process:
            self.ask(process, self.prepare)
            with process.stdin:
                pids = [of(process.pid, self.name)]
                yield pids, *counted(lambda count: self.ask(process, self.text(count)))
            # The end of its input ends the process.
            process.wait(tools.LIMIT)

    def ask(self, process, text):
        process.stdin.write(self.line(text + self.done))
        process.stdin.flush()
        said, limit = b"", time.monotonic() + tools.LIMIT
        while not said.endswith(b"done\n"):
            if not select.select([process.stdout], [], [], max(0, limit - time.monotonic()))[0]:
                raise Unavailable(f"{self.name} does not answer")
            more = os.read(process.stdout.fileno(), 4096)
            if not more:
                raise Unavailable(f"{self.name} has ended")
            said += more

    def line(self, text):
        """The encoding of a command on the standard input."""
        return text


class Sqlite(Shell):
    """Rows of a sorted query with three columns."""

    name = "sqlite3"
    functions = [
        (f"{LIBRARIES}/libsqlite3.so.0", "sqlite3_step"),
        (f"{LIBRARIES}/libsqlite3.so.0", "sqlite3_column_text"),
    ]
    work = 1_000_000
    prepare, done = "", ".output stdout\n.print done\n"

    def command(self):
        return [program("sqlite3")]

    def text(self, count):
        return f"""\
.output /dev/null
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
SELECT i, i * 7919 % 1009, 'row ' || i FROM n ORDER BY 2;
"""


class Python(Shell):
    """Counts, sorts and joins words. Measures the allocator of the interpreter."""

    name = "python3.11"
    functions = [("/usr/bin/python3.11", "PyObject_Malloc")]
    work = 200
    prepare = """
import sys
def words(count):
    for seed in range(count):
        known = {}
        for i in range(2000):
            word = 'w' + str((i * i + seed) % 977)
            known[word] = known.get(word, 0.5) + i
        ','.join(sorted(f'{word}={value}' for word, value in known.items()))
"""
    done = "\nprint('done', flush=True)\n"

    def command(self):
        # Executes one statement after another, as they arrive.
        loop = "import sys\nfor line in iter(sys.stdin.readline, ''): exec(eval(line))"
        return [program("/usr/bin/python3.11"), "-I", "-S", "-B", "-c", loop]

    def text(self, count):
        return f"words({count})"

    def line(self, text):
        return repr(text) + "\n"


class Halo:
    """Steps of examples/halo on two ranks. Measures MPI_Wait."""

    name = "halo, 2 ranks"
    functions = [(f"{LIBRARIES}/libmpi.so.40", "MPI_Wait")]
    work = 800
    is_endless = True
    source = "../../examples/halo/halo.c"
    rounds = "1000000"

    @contextlib.contextmanager
    def running(self, scratch, prefix):
        called = os.path.basename(self.source).removesuffix(".c")
        halo = os.path.join(scratch, called)
        if not os.path.exists(halo):
            here = os.path.dirname(os.path.abspath(__file__))
            source = os.path.join(here, self.source)
            done = run([program("mpicc"), "-O2", "-g", source, "-o", halo])
            if done.returncode != 0:
                raise Unavailable(f"mpicc: {done.stderr.strip()}")
        names = [line.split() for line in run(["nm", halo]).stdout.strip().split("\n")]
        self.variable = next(int(words[0], 16) for words in names if words[-1] == "steps_done")
        command = [program("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "2"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with started([*command, *prefix, halo, self.rounds], **quiet) as mpirun:
            ranks = []

            def all_run():
                ranks[:] = descendants(mpirun.pid, called)
                return len(ranks) == 2 and all(self.steps(rank, halo) > 10 for rank in ranks)

            wait_for(called, all_run, mpirun)
            steps = lambda: self.steps(ranks[0], halo)
            yield ranks, lambda count: self.wait(steps, count), steps

    def wait(self, steps, count):
        before, limit = steps(), time.monotonic() + tools.LIMIT
        while steps() < before + count and time.monotonic() < limit:
            time.sleep(0.01)
        return steps() - before

    def steps(self, rank, halo):
        """The number of steps done, from a variable of the program. 0 while it is not readable."""
        try:
            with open(f"/proc/{rank}/maps") as maps, open(f"/proc/{rank}/mem", "rb") as memory:
                first = next(line for line in maps if line.rstrip().endswith(halo))
                memory.seek(int(first.split("-")[0], 16) + self.variable)
                return int.from_bytes(memory.read(8), "little")
        except (OSError, StopIteration):
            return 0


class PingPong(Halo):
    """Rounds of two ranks that only pass a message back and forth: two calls of MPI_Wait each."""

    name = "ping-pong, 2 ranks"
    work = 400_000
    source = "pingpong.c"
    rounds = "1000000000"


def counted(work):
    """Wraps `work` so that it returns its number of operations.

    The second value is a function that returns the total number.
    """
    every = []

    def counting(count):
        work(count)
        every.append(count)
        return count

    return counting, lambda: sum(every)


def program(name):
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def answers(path):
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def descendants(pid, name):
    """The live processes of this name among `pid` and its descendants."""
    found = []
    try:
        with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/stat") as stat:
            # The state follows the name in parentheses.
            if comm.read().startswith(name) and stat.read().rsplit(") ", 1)[1][0] != "Z":
                found.append(pid)
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as children:
                for child in children.read().split():
                    found += descendants(int(child), name)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def of(pid, name):
    found = []

    def is_there():
        found[:] = descendants(pid, name)
        return bool(found)

    wait_for(name, is_there)
    return found[0]
