"""The processor time and memory of the live view with 65,536 paths, and the time to its first
picture of a large program."""

import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import termios
import time
from fcntl import ioctl

from measure import fail, output
from programs import processor_time

HERE = os.path.dirname(os.path.abspath(__file__))
# Seconds of measurement, once all paths have occurred.
SECONDS = 10
SETTLES = 15


class Seated:
    """The command on its own terminal."""

    def __init__(self, command):
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = b""

    def read_for(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                continue
            try:
                self.seen = (self.seen + os.read(self.master, 1 << 16))[-(1 << 20):]
            except OSError:
                # The other end is closed because the command has ended.
                return

    def until(self, pattern):
        """Seconds from the start until the output matches `pattern`."""
        while not re.search(pattern, self.seen):
            if time.monotonic() > self.begun + 60 or self.process.poll() is not None:
                fail(f"the view: {self.seen[-500:]!r}")
            self.read_for(0.005)
        return time.monotonic() - self.begun

    def end(self):
        os.write(self.master, b"q")
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            self.read_for(0.05)
        os.close(self.master)


def resident(pid):
    """The resident set of a process, in MB."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) / 1024


def of_many_paths(bench):
    """The processor time, as a fraction of a core, and the memory in MB of a view.

    The program passes all its paths each second.
    """
    program = os.path.join(bench.scratch, "many_paths")
    source = os.path.join(HERE, "..", "programs", "many_paths.c")
    output(["gcc", "-O2", source, "-o", program])
    target = subprocess.Popen([program, "16", "0", "700"], stdout=subprocess.PIPE)
    target.stdout.readline()
    try:
        seated = Seated([bench.ipath, "attach", str(target.pid), "-f", "leaf"])
        seated.until(rb"CALLS")
        seated.read_for(SETTLES)
        pid = seated.process.pid
        before, begun = processor_time([pid]), time.monotonic()
        seated.read_for(SECONDS)
        share = (processor_time([pid]) - before) / (time.monotonic() - begun)
        found = share, resident(pid)
        seated.end()
        return found
    finally:
        target.send_signal(signal.SIGKILL)
        target.wait()


def first_picture(bench):
    """Seconds until the view shows figures.

    The measured program is ipath itself: some 60 MB with its debug information.
    """
    target = subprocess.Popen(
        [bench.ipath, "demo-target"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    target.stdout.read(1)
    try:
        seated = Seated([bench.ipath, "attach", str(target.pid), "-f", "demo_find"])
        found = seated.until(rb"demo_find")
        seated.end()
        return found
    finally:
        target.kill()
        target.wait()


def view(bench):
    print("\nview: 65,536 paths below one function, all of them passed each second, at 150 columns by 50")
    print("lines; and the time from the command to the first picture of a program of 60 MB. Medians")
    rounds = [of_many_paths(bench) for _ in range(min(bench.rounds, 3))]
    share, size = (statistics.median(values) for values in zip(*rounds))
    picture = statistics.median(first_picture(bench) for _ in range(bench.rounds))
    print(f"CPU, of a core    {100 * share:8.2f} %")
    print(f"memory            {size:8.0f} MB")
    print(f"first picture     {1000 * picture:8.0f} ms")
    return [{"cpu": share, "resident_mb": size, "first_picture_s": picture}]
