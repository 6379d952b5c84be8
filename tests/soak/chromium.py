"""Repeatedly attaches to each kind of process of a sandboxed Chromium while its page works."""

import os
import sys
import time

import rounds
from browser import Browser, children

# Functions that every process of an active browser calls; only some call `write` and `poll`.
FUNCTIONS = ["libc.so*!write", "libc.so*!pthread_mutex_lock", "libc.so*!memcpy", "libc.so*!epoll_wait"]
IDLE = "storage.mojom.StorageService"
KINDS = ["browser", "gpu-process", "network.mojom.NetworkService", IDLE, "renderer"]


def of_kind(browser, kind):
    """The process of a kind. Of the renderers it is that of the page, the only one with workers."""
    limit = time.monotonic() + rounds.LIMIT
    while time.monotonic() < limit:
        for pid, found in browser.processes().items():
            if found == kind and (kind != "renderer" or has_worker(pid)):
                return pid
    raise rounds.Failed(f"no process of kind {kind}")


def has_worker(pid):
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        names = [open(f"/proc/{pid}/task/{task}/comm").read() for task in tasks]
    except OSError:
        return False
    return any(name.startswith("DedicatedWorker") for name in names)


def filtered(pid):
    """True if the process has a seccomp filter."""
    with open(f"/proc/{pid}/status") as file:
        return any(line.split() == ["Seccomp:", "2"] for line in file)


def kind(browser, name, number):
    """The number of failed rounds of attaching to one kind of process."""
    pid = of_kind(browser, name)

    def one(index):
        how = rounds.changed if index % 4 == 3 else rounds.attach
        profile = how(pid, FUNCTIONS, *([] if index % 4 == 3 else ["300ms"]))
        browser.check()
        counts = rounds.calls(profile)
        if sum(counts.values()) == 0 and name != IDLE:
            raise rounds.Failed("no call was counted")
        return {name: sum(counts.values()) + int(name == IDLE)}

    where = "under a filter" if filtered(pid) else "without a filter"
    return rounds.series(f"{name} {pid} {where}", number, one)


def as_user(browser, name, user):
    """1 if attaching as the user of the browser fails, else 0.

    It must either work or be refused with one line.
    """
    pid = of_kind(browser, name)
    status, _, err = rounds.ipath(
        "attach", pid, *rounds.selection(FUNCTIONS[:2]), "--duration", "300ms", "--no-tui", user=user)
    lines = [line for line in err.splitlines() if line.startswith("ipath: ")]
    failed = status not in (0, 1) or (status == 1 and len(lines) != 1)
    try:
        browser.check()
        rounds.left_nothing(pid)
    except Exception as error:
        failed = True
        print(f"{name} as {user}: {error}")
    print(f"{name} as {user}: exit status {status}: {err.strip() or 'works'}", flush=True)
    return int(failed)


def main(number, user):
    browser = Browser("/usr/lib/chromium/chromium", os.path.expanduser(f"~{user}"), user)
    try:
        browser.check()
        kinds = browser.processes()
        failures = 0
        for name in KINDS:
            if name in kinds.values():
                failures += kind(browser, name, number)
                failures += as_user(browser, name, user)
            else:
                print(f"{name}: there is none")
        browser.open()
        browser.check()
    finally:
        browser.close()
    return failures


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), sys.argv[2])))
