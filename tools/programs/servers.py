"""Servers with their load: python servers.py CASE plain|remedied HOW, as in misuse.py; the server is our child."""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

LIBC_PDEATHSIG = 1


def child(command, **more):
    def tie():
        import ctypes

        ctypes.CDLL(None).prctl(LIBC_PDEATHSIG, signal.SIGKILL)

    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=tie, **more)


def wait_for(path):
    for _ in range(600):
        if os.path.exists(path):
            return
        time.sleep(0.1)
    sys.exit(f"{path} did not come")


class Redis:
    def __init__(self, *options):
        child(["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--rdbcompression", "no", *options])
        wait_for("redis.sock")
        time.sleep(0.2)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect("redis.sock")
        self.lines = self.socket.makefile("rb")

    def __call__(self, *words):
        words = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.lines.readline()

    def fill(self, rows):
        self("EVAL", f"for i=1,{rows} do redis.call('SET','k'..i,string.rep('x',900)..i) end", 0)


def redis_saves(is_remedied):
    """Saves again and again while it is written to: fewer saves, here none. A unit is 500 writes."""
    redis = Redis()
    redis.fill(300_000)
    while True:
        if not is_remedied:
            redis("BGSAVE")
        redis("EVAL", "for i=1,500 do redis.call('SETRANGE','k'..math.random(300000),7,'y') end", 0)
        yield


def redis_full(is_remedied):
    """Nearly as large as its cgroup may become; the remedied one's may be larger."""
    redis = Redis()
    redis.fill(285_000)
    while True:
        redis("EVAL", "for i=1,500 do redis.call('GET','k'..math.random(285000)) end", 0)
        yield


def as_user(user, directory):
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    shutil.chown(directory, user, user)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


POSTGRES = "/usr/lib/postgresql/15/bin/"


def postgres(buffers):
    be = as_user("postgres", "pg")
    here = os.path.abspath("pg")
    subprocess.run([*be, POSTGRES + "initdb", "-D", here + "/data", "-A", "trust"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    options = ["-c", f"shared_buffers={buffers}", "-c", "listen_addresses=", "-c", "max_parallel_workers_per_gather=0", "-c", "autovacuum=off"]
    child([*be, POSTGRES + "postgres", "-D", here + "/data", "-k", here, *options])
    wait_for("pg/.s.PGSQL.5432")
    time.sleep(1)
    return subprocess.Popen([*be, "psql", "-q", "-A", "-t", "-h", here, "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(client, query):
    client.stdin.write(query + "\n")
    client.stdin.flush()
    return client.stdout.readline()


def postgres_scans(is_remedied):
    """shared_buffers far below a table that is read again and again: above it. A unit is a pass."""
    client = postgres("1GB" if is_remedied else "2MB")
    said(client, "CREATE TABLE t AS SELECT i, repeat(md5(i::text), 12) AS v FROM generate_series(1, 400000) i; SELECT 1;")
    while True:
        # By the index, as a scan of a large table goes by a ring of its own and never fills shared_buffers.
        said(client, "SELECT count(length(v)) FROM t WHERE i % 7 >= 0;")
        yield


def postgres_bench(is_remedied):
    """pgbench, as it is."""
    postgres("128MB")
    here = os.path.abspath("pg")
    subprocess.run(["pgbench", "-i", "-q", "-h", here, "-U", "postgres", "-s", "5", "postgres"], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    child(["pgbench", "-h", here, "-U", "postgres", "-c", "2", "-T", "600", "postgres"])
    yield
    while True:
        time.sleep(1)
        yield


def mariadb(*options):
    be = as_user("mysql", "maria")
    here = os.path.abspath("maria")
    subprocess.run(["mariadb-install-db", "--user=mysql", f"--datadir={here}/data", "--auth-root-authentication-method=normal"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child([*be, "mariadbd", "--no-defaults", f"--datadir={here}/data", f"--socket={here}/socket", f"--pid-file={here}/pid", "--skip-networking", *options])
    wait_for("maria/socket")
    time.sleep(1)
    return subprocess.Popen(["mariadb", "-u", "root", f"--socket={here}/socket", "-N", "-B", "-n", "test"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def mariadb_scans(is_remedied):
    """A small buffer pool before the page cache: O_DIRECT and a pool that holds the table. A unit is a pass."""
    method = ["--innodb-flush-method=O_DIRECT", "--innodb-buffer-pool-size=512M"]
    client = mariadb(*(method if is_remedied else ["--innodb-flush-method=fsync", "--innodb-buffer-pool-size=24M"]))
    said(client, "CREATE TABLE t (i INT PRIMARY KEY, v VARCHAR(500)) ENGINE=InnoDB; INSERT INTO t SELECT seq, repeat(md5(seq), 12) FROM seq_1_to_300000; SELECT 1;")
    while True:
        said(client, "SELECT sum(length(v)) FROM t;")
        yield


def mariadb_lookups(is_remedied):
    """Rows by key from a pool that holds them."""
    client = mariadb("--innodb-buffer-pool-size=256M")
    said(client, "CREATE TABLE t (i INT PRIMARY KEY, v VARCHAR(500)) ENGINE=InnoDB; INSERT INTO t SELECT seq, repeat(md5(seq), 12) FROM seq_1_to_50000; SELECT 1;")
    while True:
        said(client, f"SELECT length(v) FROM t WHERE i = {random.randrange(50_000) + 1};")
        yield


def redis_bench(is_remedied):
    """redis-benchmark, as it is."""
    Redis()
    child(["redis-benchmark", "-s", "redis.sock", "-l", "-q", "-t", "set,get", "-r", "100000", "-n", "1000000"])
    yield
    while True:
        time.sleep(1)
        yield


def work(case, is_remedied, how):
    random.seed(1)
    steps = case(is_remedied)
    next(steps)
    open("ready", "w").close()
    started = time.monotonic()
    kind, _, most = how.partition("=")
    done = 0
    while not (kind == "n" and done >= int(most)) and not (kind == "s" and time.monotonic() - started >= float(most)):
        next(steps)
        done += 1
    print(done, time.monotonic() - started, flush=True)
    os._exit(0)


if __name__ == "__main__":
    work(globals()[sys.argv[1]], sys.argv[2] == "remedied", sys.argv[3])
