"""Counts every call of some functions by its complete call path, with gdb alone.

Run inside gdb (`gdb -batch -x paths.py`). The environment variable IPATH_ORACLE names a file
with the job as JSON:

    {"program": "...", "args": [...], "stdin": "...", "stdout": "...", "stderr": "...",
     "sites": [{"module": "libmpi.so.40", "address": 616096}], "paths": true, "result": "..."}

`address` is the virtual address in the module's file. The breakpoint is at the first instruction of
the function, so only the unwind rules of the callers determine return addresses. Without `paths`,
calls are only counted, with gdb's own hit count of the breakpoint.
"""

import json
import os
import re
import struct

import gdb

PT_LOAD = 1
PF_X = 1


def loads(path):
    """(file offset, file size, virtual address, executable) of each PT_LOAD of an ELF64 file."""
    with open(path, "rb") as f:
        head = f.read(64)
        phoff = struct.unpack_from("<Q", head, 32)[0]
        size, count = struct.unpack_from("<HH", head, 54)
        f.seek(phoff)
        table = f.read(size * count)
    found = []
    for i in range(count):
        kind, flags, offset, vaddr, _, filesz = struct.unpack_from("<IIQQQQ", table, i * size)
        if kind == PT_LOAD:
            found.append((offset, filesz, vaddr, bool(flags & PF_X)))
    return found


class Modules:
    """The executable mappings of the process, each with its bias: address in process - in file."""

    line = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \d+\s*(.*)$")

    def __init__(self):
        self.headers = {}
        self.ranges = []
        self.known = {}

    def refresh(self):
        self.ranges = []
        self.known = {}
        with open("/proc/%d/maps" % gdb.selected_inferior().pid) as f:
            for text in f:
                start, end, perms, offset, path = self.line.match(text.rstrip("\n")).groups()
                if "x" not in perms:
                    continue
                start, end, offset = int(start, 16), int(end, 16), int(offset, 16)
                shift = self.shift(path, start, offset)
                self.ranges.append((start, end, os.path.basename(path) or "[anonymous]", shift))

    def shift(self, path, start, offset):
        if not path.startswith("/"):
            return start
        if path not in self.headers:
            self.headers[path] = loads(path)
        for file_offset, size, vaddr, executable in self.headers[path]:
            if executable and file_offset & ~0xFFF <= offset < file_offset + size:
                return start - (vaddr + offset - file_offset)
        raise gdb.GdbError("no executable segment of %s is mapped at %#x" % (path, start))

    def find(self, pc):
        for start, end, name, shift in self.ranges:
            if start <= pc < end:
                return (name, pc - shift)
        return None

    def relative(self, pc):
        """(file name of the module, address in the file) of a program counter. Cached."""
        hit = self.known.get(pc)
        if hit is None:
            hit = self.find(pc)
            if hit is None:
                self.refresh()
                hit = self.find(pc) or ("[unmapped]", pc)
            self.known[pc] = hit
        return hit

    def absolute(self, name, address):
        """The address in the process of an address in a module. None while it is not mapped."""
        for start, end, module, shift in self.ranges:
            if module == name and start <= address + shift < end:
                return address + shift
        return None


SYNTHETIC = (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME)
FOREVER = 2**31 - 1
ENDS = (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST, gdb.FRAME_UNWIND_NULL_ID)


class Site(gdb.Breakpoint):
    """A breakpoint that records the caller's path and never stops the program."""

    def __init__(self, index, at, modules, counts):
        super().__init__("*%#x" % at, internal=True)
        self.index = index
        self.at = at
        self.modules = modules
        self.counts = counts
        self.error = None

    def stop(self):
        try:
            self.record()
        except Exception as error:  # gdb would print it and stop the program
            self.error = self.error or "%s: %s" % (type(error).__name__, error)
        return False

    def record(self):
        frame = gdb.newest_frame()
        if frame.pc() != self.at:
            raise RuntimeError("stopped at %#x, not at %#x" % (frame.pc(), self.at))
        stack = []
        skipping = True  # the probed function itself, with functions inlined at its start
        while True:
            if frame.type() not in SYNTHETIC:
                if skipping:
                    skipping = False
                else:
                    # Past the loader's entry code gdb follows words that are not addresses.
                    stack.append(self.modules.relative((frame.pc() - 1) & 0xFFFFFFFFFFFFFFFF))
            older = frame.older()
            if older is None:
                break
            frame = older
        complete = frame.unwind_stop_reason() in ENDS
        key = (self.index, gdb.selected_thread().num, complete, tuple(stack))
        self.counts[key] = self.counts.get(key, 0) + 1


class Counter(gdb.Breakpoint):
    """A breakpoint that only counts hits: its ignore count is too large to ever stop."""

    def __init__(self, index, at):
        super().__init__("*%#x" % at, internal=True)
        self.ignore_count = FOREVER
        self.index = index
        self.error = None


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


SETTINGS = [
    "set pagination off",
    "set confirm off",
    "set width 0",
    "set debuginfod enabled off",
    "set auto-load no",
    "set non-stop off",
    "set follow-fork-mode parent",
    "set detach-on-fork on",
    "set breakpoint pending on",
    "set backtrace past-main on",
    "set backtrace past-entry on",
    "set backtrace limit unlimited",
    "set print thread-events off",
    "set print inferior-events off",
    # gdb adds LINES and COLUMNS to the environment of the program
    "set exec-wrapper env -u LINES -u COLUMNS -u IPATH_ORACLE",
    "handle all nostop noprint pass",
    "handle SIGTRAP stop nopass",
]


def main():
    with open(os.environ["IPATH_ORACLE"]) as f:
        job = json.load(f)
    for setting in SETTINGS:
        gdb.execute(setting, to_string=True)
    ending = {}

    def exited(event):
        if hasattr(event, "exit_code"):
            ending["code"] = event.exit_code
        else:
            ending["signal"] = int(gdb.parse_and_eval("$_exitsignal"))

    gdb.events.exited.connect(exited)
    gdb.execute("file " + quote(job["program"]), to_string=True)
    arguments = " ".join(quote(a) for a in job["args"])
    streams = tuple(quote(job[k]) for k in ("stdin", "stdout", "stderr"))
    gdb.execute("set args %s < %s > %s 2> %s" % ((arguments,) + streams))
    gdb.execute("starti", to_string=True)

    modules, counts = Modules(), {}
    waiting = dict(enumerate(job["sites"]))
    placed = []
    while not ending:
        modules.refresh()
        for index, site in list(waiting.items()):
            at = modules.absolute(site["module"], site["address"])
            if at is not None:
                own = Site(index, at, modules, counts) if job["paths"] else Counter(index, at)
                placed.append(own)
                del waiting[index]
        # The hook of the loader stops the program after each change of its list of libraries,
        # before a constructor of the new libraries runs.
        gdb.execute("set stop-on-solib-events %d" % (1 if waiting else 0))
        gdb.execute("continue", to_string=True)

    if not job["paths"]:
        counts = {(own.index, 0, True, ()): own.hit_count for own in placed}
    paths = [
        {
            "site": index,
            "thread": thread,
            "complete": complete,
            "stack": stack,
            "hits": hits,
        }
        for (index, thread, complete, stack), hits in counts.items()
    ]
    errors = [site.error for site in placed if site.error]
    errors += ["%(module)s was never mapped" % site for site in waiting.values()]
    with open(job["result"], "w") as f:
        json.dump({"paths": paths, "ending": ending, "errors": errors}, f)


main()
