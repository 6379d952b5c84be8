"""Headless Chromium with its sandbox, controlled over its DevTools pipe."""

import json
import os
import select
import subprocess
import time

LIMIT = 60.0

PAGE = """data:text/html,<title>soak</title><script>
var ticks = 0; setInterval(() => { ticks++; document.title = 'soak ' + ticks }, 20);
function work() { return new Promise((done, failed) => {
  const text = 'let s = 0; for (let i = 0; i < 1e6; i++) s += i; postMessage(s)';
  const worker = new Worker(URL.createObjectURL(new Blob([text])));
  worker.onmessage = e => { worker.terminate(); done(e.data) };
  worker.onerror = e => failed(e.message) }) }
setInterval(work, 200);
</script>"""

# The result of a worker of the page: the sum of the integers below a million.
WORKED = 499999500000


class Gone(Exception):
    """The browser or its page has ended."""


def words(path):
    """The words of a file in /proc. Empty if the process has ended."""
    try:
        with open(path, "rb") as file:
            return file.read().replace(b"\0", b" ").decode().split()
    except OSError:
        return []


def children(pid):
    """The child processes of all threads of a process."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in words(f"/proc/{pid}/task/{task}/children")]


class Browser:
    """A browser with one page open. Its output goes to the file `log`."""

    def __init__(self, program, home, user=None, gpu=True):
        commands, answers = os.pipe(), os.pipe()
        arguments = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-quic", f"--user-data-dir={home}/profile", "about:blank",
        ]
        arguments[1:1] = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"] if gpu else ["--disable-gpu"]

        def prepare():
            # High numbers first, so that neither pipe occupies the other's target.
            command, answer = (os.dup2(fd, high) for fd, high in ((commands[0], 103), (answers[1], 104)))
            os.dup2(command, 3)
            os.dup2(answer, 4)
            os.closerange(5, 200)

        self.log = open(f"{home}/log", "wb")
        self.process = subprocess.Popen(
            arguments, preexec_fn=prepare, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, cwd=home, user=user, group=user, extra_groups=[] if user else None,
            env={"HOME": home, "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": home},
        )
        os.close(commands[0])
        os.close(answers[1])
        self.to, self.answers, self.rest = commands[1], answers[0], b""
        self.number, self.crashes = 0, []
        self.page = self.open()

    def open(self):
        """Opens a new page, waits until it is loaded, and returns its session."""
        target = self.call("Target.createTarget", {"url": PAGE})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.call("Inspector.enable", session=session)
        limit = time.monotonic() + LIMIT
        while self.value("typeof ticks == 'number' && ticks > 0", session) is not True:
            if time.monotonic() > limit:
                raise Gone("the page is not loaded")
        return session

    def call(self, method, parameters=None, session=None):
        """Sends a command and returns the answer. Records crashes in the meantime."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        limit = time.monotonic() + LIMIT
        while True:
            answer = self.next(limit, method)
            if answer.get("method") in ("Inspector.targetCrashed", "Target.targetCrashed"):
                self.crashes.append(answer)
                if answer.get("sessionId") == session:
                    raise Gone(f"{method}: the page has crashed")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Gone(f"{method}: {answer['error']}")
                return answer["result"]

    def next(self, limit, what):
        """The next message from the browser."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0, limit - time.monotonic()))
            data = os.read(self.answers, 1 << 16) if ready else None
            if data is None:
                raise Gone(f"{what}: no answer in {LIMIT} s")
            if not data:
                raise Gone(f"{what}: the browser has ended")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def value(self, expression, session=None):
        """The value of a JavaScript expression in the page. Waits for a promise."""
        arguments = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", arguments, session or self.page)
        return result["result"].get("value")

    def check(self):
        """Raises `Gone` unless the page counts, a new worker works, and nothing has crashed."""
        before = self.value("ticks")
        counted = self.value(
            "new Promise(done => { const t = ticks; setInterval(() => ticks > t && done(ticks), 5) })")
        if not before <= counted:
            raise Gone(f"the page counts from {before} to {counted}")
        if (worked := self.value("work()")) != WORKED:
            raise Gone(f"a new worker computes {worked}")
        if self.crashes:
            raise Gone(f"crashed: {self.crashes}")
        if self.process.poll() is not None:
            raise Gone(f"the browser has ended: {self.process.returncode}")

    def processes(self):
        """The browser's processes: pid to kind (`browser`, `renderer`, `gpu-process`, ...)."""
        kinds, pending = {self.process.pid: "browser"}, [self.process.pid]
        while pending:
            for child in children(pending.pop()):
                if arguments := words(f"/proc/{child}/cmdline"):
                    kind = [a[7:] for a in arguments if a.startswith("--type=")]
                    sub = [a[19:] for a in arguments if a.startswith("--utility-sub-type=")]
                    kinds[child] = (sub or kind or ["?"])[0]
                    pending.append(child)
        return kinds

    def close(self):
        """Ends the browser, by its process ID: other browsers continue."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self.to)
        os.close(self.answers)
        self.log.close()
