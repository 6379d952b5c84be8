"""ipath and other tools on running processes. Each measures the calls of the same functions and
reports their number. uftrace cannot attach to a process, so it starts the program."""

import contextlib
import dataclasses
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

from measure import Unavailable, run

LIMIT = 60.0
TRACING = "/sys/kernel/tracing"


@dataclasses.dataclass(frozen=True)
class Place:
    """A function: its ELF file, its name and its virtual address in the file."""

    file: str
    name: str
    address: int

    def pattern(self):
        return f"{os.path.basename(self.file)}!{self.name}"

    def offset(self):
        """The file offset of the function, for uprobes."""
        listing = run(["readelf", "-lW", self.file]).stdout
        for found in re.finditer(r"^\s+LOAD\s+(\w+) (\w+) \w+ (\w+)", listing, re.MULTILINE):
            offset, start, size = (int(word, 16) for word in found.groups())
            if start <= self.address < start + size:
                return self.address - start + offset
        raise Unavailable(f"{self.name} is in no segment of {self.file}")


def place(ipath, file, name):
    """The function of this name. `Unavailable` if ipath cannot measure it."""
    file = os.path.realpath(file)
    done = run([ipath, "list", file, name, "--json"])
    if done.returncode != 0:
        raise Unavailable(done.stderr.strip().split("\n")[0])
    found = [f for f in json.loads(done.stdout)["functions"] if name == f["name"]]
    if len(found) != 1 or found[0]["refused"]:
        raise Unavailable(f"{file} has no {name} that ipath can measure")
    return Place(file, name, found[0]["address"])


def wait_for(what, is_so, process=None):
    limit = time.monotonic() + LIMIT
    while not is_so():
        if process is not None and process.poll() is not None:
            raise Unavailable(f"{what}: has ended")
        if time.monotonic() > limit:
            raise Unavailable(f"{what}: not in {LIMIT:.0f} s")
        time.sleep(0.02)


@contextlib.contextmanager
def started(command, **options):
    """A process that ends with the block: by SIGINT, or else by SIGKILL."""
    process = subprocess.Popen(command, stdin=options.pop("stdin", subprocess.DEVNULL), **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            # A stopped process does not handle a signal until it continues.
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ended(process):
    """Interrupts a process and returns its output."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{process.args[0]} does not end") from None


class Tool:
    """No tool: the plain run. Base class of all tools."""

    # The share of the work that a run under this tool does.
    share = 1.0

    def __init__(self, bench, places):
        self.bench, self.places = bench, places

    def prefix(self):
        """The command that starts the program. Empty if the tool attaches to it."""
        return []

    @contextlib.contextmanager
    def on(self, pids):
        """Attaches the tool to these processes.

        The value is a function that detaches it and returns the number of calls that it saw.
        """
        yield lambda: None

    def calls_after(self):
        """The number of calls, if the tool reports it only after the end of the program."""
        return None


class Ipath(Tool):
    """Counts calls and times by call path."""

    @contextlib.contextmanager
    def on(self, pids):
        functions = [word for place in self.places for word in ("-f", place.pattern())]
        with contextlib.ExitStack() as stack:
            every = []
            for pid in pids:
                profile = os.path.join(self.bench.scratch, f"profile-{pid}.json")
                command = [self.bench.ipath, "attach", str(pid), *functions, "-m", "count,wall"]
                command += ["--no-tui", "--interval", "10m", "-o", profile]
                pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                process = stack.enter_context(started(command, **pipes))
                wait_for("ipath attach", lambda pid=pid: self.is_in(pid), process)
                every.append((process, profile))
            yield lambda: sum(self.calls(*one) for one in every)

    def is_in(self, pid):
        listed = run([self.bench.ipath, "status", str(pid)])
        return len(re.findall(r"  in$", listed.stdout, re.MULTILINE)) == len(self.places)

    def calls(self, process, profile):
        ended(process)
        with open(profile) as file:
            found = json.load(file)
        losses = found["losses"]
        if losses["missed"] or losses["overflow"]:
            raise Unavailable(f"lost {losses}")
        return sum(function["totals"]["count"] for function in found["functions"])


class Bpftrace(Tool):
    """Sums times by stack, up to the first frame without a frame pointer."""

    share = 0.1

    @contextlib.contextmanager
    def on(self, pids):
        if shutil.which("bpftrace") is None:
            raise Unavailable("not installed")
        is_ours = " || ".join(f"pid == {pid}" for pid in pids)
        # Probes are attached in reverse order: when this one fires, all are attached.
        script = 'interval:ms:50 { printf("ready\\n"); }\n'
        for number, place in enumerate(self.places):
            probe = f"{place.file}:0x{place.address:x}"
            script += f"""
                uprobe:{probe} /{is_ours}/ {{ @from{number}[tid] = nsecs; @entered = count(); }}
                uretprobe:{probe} /@from{number}[tid]/ {{
                    @time{number}[ustack] = sum(nsecs - @from{number}[tid]);
                    @calls{number}[ustack] = count();
                    delete(@from{number}[tid]);
                }}"""
        output = os.path.join(self.bench.scratch, "bpftrace.json")
        errors = os.path.join(self.bench.scratch, "bpftrace.errors")
        with open(output, "w") as file, open(errors, "w") as error_file:
            environment = {**os.environ, "BPFTRACE_MAP_KEYS_MAX": "65536"}
            options = {"env": environment, "stdout": file, "stderr": error_file}
            with started(["bpftrace", "-f", "json", "-e", script], **options) as process:
                try:
                    wait_for("bpftrace", lambda: "ready" in read(output), process)
                except Unavailable as reason:
                    raise Unavailable(read(errors).strip().split("\n")[-1] or reason) from None
                yield lambda: self.calls(process, output)

    def calls(self, process, output):
        ended(process)
        found = re.search(r'"@entered": (\d+)', read(output))
        if found is None:
            raise Unavailable("bpftrace does not say how many calls")
        return int(found.group(1))


class Perf(Tool):
    """Records each call with its stack, found by frame pointers, without times."""

    share = 0.1

    @contextlib.contextmanager
    def on(self, pids):
        if shutil.which("perf") is None:
            raise Unavailable("not installed")
        group = f"ipath_bench_{os.getpid()}"
        names = ("data", "control", "answer")
        data, control, answer = (os.path.join(self.bench.scratch, f"perf.{n}") for n in names)
        for name in (control, answer):
            if not os.path.exists(name):
                os.mkfifo(name)
        command = ["perf", "record", "-e", f"{group}:*", "-g", "-o", data, "-D", "-1"]
        command += ["-p", ",".join(map(str, pids)), "--control", f"fifo:{control},{answer}"]
        with tracing(), uprobes(group, self.places):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            fifos = opened(control), opened(answer)
            with started(command, **pipes) as process, fifos[0] as say, fifos[1] as hear:
                os.write(say, b"enable\n")
                answers = bytearray()
                wait_for("perf record", lambda: b"ack" in heard(hear, answers), process)
                yield lambda: self.calls(process, data)

    def calls(self, process, data):
        ended(process)
        stats = run(["perf", "report", "--stats", "-i", data]).stdout
        found = [int(n) for n in re.findall(r"^ *SAMPLE events: +(\d+)", stats, re.MULTILINE)]
        if not found:
            raise Unavailable("perf report says no samples")
        # The total comes first, then the figure of each event.
        return found[0]


class Uftrace(Tool):
    """Records every call with its time, without callers. It starts the program."""

    share = 0.25

    def prefix(self):
        if shutil.which("uftrace") is None:
            raise Unavailable("not installed")
        if any(not os.path.basename(place.file).startswith("lib") for place in self.places):
            raise Unavailable("finds no function of a stripped program")
        for data in glob.glob(self.data() + ".*"):
            shutil.rmtree(data)
        functions = [f"^{place.name}$@{os.path.basename(place.file)}" for place in self.places]
        names = [word for function in functions for word in ("-P", function)]
        # One folder per rank of a parallel program.
        script = 'data=$1; shift; exec uftrace record -d "$data.$OMPI_COMM_WORLD_RANK" "$@"'
        return ["sh", "-c", script, "sh", self.data(), "--no-libcall", "--force", *names]

    def data(self):
        return os.path.join(self.bench.scratch, "uftrace")

    def calls_after(self):
        calls = 0
        for data in glob.glob(self.data() + ".*"):
            report = run(["uftrace", "report", "--no-pager", "-d", data]).stdout
            for place in self.places:
                found = re.findall(rf"(\d+)\s+{place.name}$", report, re.MULTILINE)
                calls += sum(map(int, found))
        if calls == 0:
            raise Unavailable("sees no call")
        return calls


def read(name):
    with open(name, errors="replace") as file:
        return file.read()


def heard(descriptor, so_far):
    """Appends the available bytes to `so_far`, without blocking, and returns it."""
    with contextlib.suppress(BlockingIOError):
        so_far += os.read(descriptor, 64)
    return so_far


@contextlib.contextmanager
def opened(fifo):
    """Opens a FIFO for reading and writing, so that the open does not wait for the other end."""
    descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def tracing():
    """Mounts tracefs, which manages uprobes, for the block if it is not mounted."""
    was_there = os.path.exists(f"{TRACING}/uprobe_events")
    if not was_there and run(["mount", "-t", "tracefs", "nodev", TRACING]).returncode != 0:
        raise Unavailable(f"no {TRACING}/uprobe_events")
    try:
        yield
    finally:
        if not was_there:
            run(["umount", TRACING])


@contextlib.contextmanager
def uprobes(group, places):
    names = [f"call{number}" for number in range(len(places))]

    def write(line):
        # A Python file object would seek to the end, which this file does not have.
        descriptor = os.open(f"{TRACING}/uprobe_events", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    made = []
    try:
        for name, place in zip(names, places):
            write(f"p:{group}/{name} {place.file}:0x{place.offset():x}")
            made.append(name)
        yield
    finally:
        for name in made:
            write(f"-:{group}/{name}")
