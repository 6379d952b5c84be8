"""Attaches to node, python, redis, PostgreSQL and MariaDB under load. The results of the load must
be right."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import rounds

LIMIT = 60.0


class Started:
    """A child process. Its output goes to a file."""

    def __init__(self, arguments, folder, user=None, **options):
        self.log = open(f"{folder}/{os.path.basename(arguments[0])}.log", "ab+")
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=folder,
            user=user, group=user, extra_groups=[] if user else None, **options)
        self.pid = self.process.pid

    def end(self, by=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(by)
        status = self.process.wait(LIMIT)
        self.log.close()
        return status

    def said(self):
        with open(self.log.name, errors="replace") as file:
            return file.read()


class Load(threading.Thread):
    """Runs a command repeatedly until `end`. `check` returns true if its output is right."""

    def __init__(self, arguments, check, **options):
        super().__init__(daemon=True)
        self.arguments, self.check, self.options = arguments, check, options
        self.ending, self.runs, self.wrong = False, 0, []

    def run(self):
        while not self.ending:
            done = subprocess.run(
                self.arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, **self.options)
            self.runs += 1
            if done.returncode != 0 or not self.check(done.stdout):
                self.wrong.append(f"{done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}")

    def end(self):
        self.ending = True
        self.join(rounds.LIMIT)
        if self.is_alive():
            self.wrong.append("has not ended")


def wait_for(what, is_so):
    limit = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > limit:
            raise rounds.Failed(f"{what}: not in {LIMIT} s")
        time.sleep(0.05)


def round_of(pid_of, functions):
    def one(index):
        how = rounds.changed if index % 3 == 2 else rounds.attach
        return rounds.calls(how(pid_of(), functions))
    return one


NODE = """
const { execFileSync } = require('child_process'), zlib = require('zlib'), crypto = require('crypto'), fs = require('fs');
const digest = () => {
  const bytes = Buffer.alloc(1 << 16, 'soak');
  const back = zlib.inflateSync(zlib.deflateSync(bytes));
  const file = process.argv[2]; fs.writeFileSync(file, back); const read = fs.readFileSync(file);
  return crypto.createHash('sha256').update(JSON.stringify([...read].map(x => x * 2))).digest('hex') };
const first = digest(); let times = 0;
process.on('SIGTERM', () => { console.log('end', times); process.exit(0) });
const again = () => { if (digest() !== first) { console.log('wrong', times); process.exit(3) }
  if (++times % 10 == 0) console.log('times', times); setTimeout(again, 1) };
again();
"""

PYTHON = """
import hashlib, json, signal, sys, tempfile, threading, zlib
def digest():
    data = zlib.decompress(zlib.compress(b'soak' * 9000))
    with tempfile.TemporaryFile() as file:
        file.write(data); file.seek(0); read = file.read()
    return hashlib.sha256(json.dumps([x * 2 for x in read]).encode()).hexdigest()
first, times, ending = digest(), 0, []
signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
while not ending:
    found = []
    threads = [threading.Thread(target=lambda: found.append(digest())) for _ in range(3)]
    [t.start() for t in threads]; [t.join() for t in threads]
    if found != [first] * 3: print('wrong', found); sys.exit(3)
    times += 1
    if times % 10 == 0: print('times', times, flush=True)
print('end', times)
"""


def script(name, arguments, text, functions, number):
    """Attaches to a script and returns the number of failures.

    The script repeats a computation and ends with status 3 if the result differs.
    """
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/script", "w") as file:
            file.write(text)
        program = Started([*arguments, f"{folder}/script", f"{folder}/data"], folder)
        wait_for(name, lambda: "times" in program.said())
        failures = rounds.series(name, number, round_of(lambda: program.pid, functions))
        status, said = program.end(), program.said()
        if status != 0 or "end" not in said or "wrong" in said:
            failures += 1
            print(f"{name}: ended with {status}: {said[-300:]}")
        print(f"{name}: {said.splitlines()[-1]}")
        return failures


def under_load(name, load, number, one):
    load.start()
    try:
        failures = rounds.series(name, number, one)
    finally:
        load.end()
    for wrong in load.wrong[:3]:
        print(f"{name}: load: {wrong}")
    print(f"{name}: {load.runs} runs of the load, {len(load.wrong)} wrong", flush=True)
    return failures + len(load.wrong) + int(load.runs == 0)


def redis(number):
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/socket"
        server = Started(
            ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--io-threads", "3"], folder)
        wait_for("redis", lambda: os.path.exists(socket))
        load = Load(["redis-benchmark", "-s", socket, "-q", "-n", "3000", "-c", "20", "-t", "set,get,lpush,lpop"],
                    lambda out: out.count("requests per second") == 4)
        functions = ["redis-*!processCommand", "libc.so*!write", "libc.so*!epoll_wait"]
        failures = under_load("redis", load, number, round_of(lambda: server.pid, functions))
        status = server.end()
        if status != 0:
            print(f"redis: ended with {status}: {server.said()[-500:]}")
        return failures + int(status != 0)


def postgres(number):
    folder = tempfile.mkdtemp()
    shutil.chown(folder, "postgres", "postgres")
    own = {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": folder}
    bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    run = lambda *arguments: subprocess.run(arguments, check=True, capture_output=True, text=True, **own).stdout
    run(f"{bin}/initdb", "-D", f"{folder}/data", "-A", "trust", "-N")
    server = Started([f"{bin}/postgres", "-D", f"{folder}/data", "-k", folder, "-c", "listen_addresses="],
                     folder, "postgres")
    psql = [f"{bin}/psql", "-h", folder, "-At", "postgres", "-c"]
    try:
        wait_for("postgres", lambda: subprocess.run([*psql, "select 1"], capture_output=True, **own).returncode == 0)
        run(f"{bin}/pgbench", "-h", folder, "-i", "-q", "postgres")
        load = Load([f"{bin}/pgbench", "-h", folder, "-c", "3", "-t", "500", "-n", "postgres"],
                    lambda out: "actually processed: 1500/1500" in out, **own)

        functions = ["postgres!ExecutorRun", "libc.so*!recv", "libc.so*!epoll_wait"]

        def one(index):
            # The postmaster only at the end: backends that it forks in the meantime inherit its
            # probes, and are refused.
            if index >= number - 5:
                return rounds.calls(rounds.attach(server.pid, functions[1:]))
            # Backends come and go with the load. If one ends in the meantime, that is not a
            # failure, and the next one is used.
            limit = time.monotonic() + LIMIT
            while time.monotonic() < limit:
                query = "select pid from pg_stat_activity where application_name = 'pgbench'"
                pid = next(iter(run(*psql, query).split()), None)
                try:
                    if pid:
                        how = rounds.changed if index % 3 == 2 else rounds.attach
                        return rounds.calls(how(int(pid), functions))
                except (rounds.Failed, OSError):
                    # The load ended it, and checks its own results. Killed by anything else, it is
                    # an error there.
                    if os.path.exists(f"/proc/{pid}"):
                        raise
            raise rounds.Failed("no backend lives long enough")

        failures = under_load("postgres", load, number, one)
        sums = run(*psql, "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)"
                          " and (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches)"
                          f" and (select count(*) from pgbench_history) = {1500 * load.runs}")
        if sums.strip() != "t":
            failures += 1
            print(f"postgres: the balances do not agree: {sums}")
        return failures
    finally:
        status = server.end(signal.SIGINT)
        print(f"postgres: ended with {status}")
        shutil.rmtree(folder)


def mariadb(number):
    folder = tempfile.mkdtemp()
    shutil.chown(folder, "mysql", "mysql")
    own = {"user": "mysql", "group": "mysql", "extra_groups": [], "cwd": folder}
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data",
               "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True, **own)
    socket = f"{folder}/socket"
    server = Started(["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={folder}/data", f"--socket={socket}",
                      "--skip-networking", f"--pid-file={folder}/pid"], folder, "mysql")
    client = ["mariadb", "--no-defaults", "-u", "root", "-S", socket, "-BN", "-e"]
    try:
        wait_for("mariadb", lambda: subprocess.run([*client, "select 1"], capture_output=True, **own).returncode == 0)
        prepare = ("create database soak; use soak; create table soak.t (a int primary key, b int) engine=innodb;"
                   "insert into soak.t select seq, 0 from soak.seq_1_to_2000; create table soak.runs (n int)")
        subprocess.run([*client, prepare], check=True, capture_output=True, **own)
        queries = ("update soak.t set b = b + 1; insert into soak.runs values (1);"
                   "select sum(b) = 2000 * (select count(*) from soak.runs) from soak.t;"
                   "select count(*) from soak.t x join soak.t y on x.a = y.a + 1 where x.b = y.b")
        load = Load([*client, queries], lambda out: out.split() == ["1", "1999"], **own)
        functions = ["mariadbd!*dispatch_command*", "libc.so*!pthread_mutex_lock", "libc.so*!poll"]
        failures = under_load("mariadb", load, number, round_of(lambda: server.pid, functions))
    finally:
        status = server.end()
        if status != 0:
            print(f"mariadb: {server.said()[-800:]}")
    shutil.rmtree(folder)
    print(f"mariadb: ended with {status}")
    return failures + int(status != 0)


def main(number, names):
    programs = {
        "node": lambda: script(
            "node", ["node"], NODE, ["node!uv_fs_read", "node!uv_hrtime", "libc.so*!write"], number),
        "python": lambda: script(
            "python", ["/usr/bin/python3"], PYTHON,
            ["*python3*!PyLong_FromLong", "libc.so*!write", "libc.so*!malloc"], number),
        "redis": lambda: redis(number),
        "postgres": lambda: postgres(number),
        "mariadb": lambda: mariadb(number),
    }
    return sum(programs[name]() for name in names or programs)


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), sys.argv[2:])))
