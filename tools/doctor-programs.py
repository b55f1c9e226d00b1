#!/usr/bin/env python3
"""Tries the doctor on programs of others: python3 tools/doctor-programs.py MAJORFAULT [--install] [--only NAME] [--json FILE].

Healthy ones must raise nothing of severity warning; misuses must be named by the first finding, and what it advises, applied
by hand, must gain what is promised. Each misuse is watched cold, in a memory cgroup (version 1, as root), and then timed: what
the plain program does in five seconds, done by the remedied one, in turns. The programs are in tools/programs, and what they
need is installed below /var/tmp/majorfault-programs by --install (PyPI, npm, Maven, Go, Debian); what is missing is skipped
with a sentence. Files are at most 600 MiB, and are removed at the end (--keep)."""
import argparse, json, os, shutil, signal, statistics, subprocess, sys, time

ROOT = "/var/tmp/majorfault-programs"
HERE = os.path.dirname(os.path.abspath(__file__)) + "/programs"
GROUPS = "/sys/fs/cgroup/memory"
PYPI = "lmdb rocksdict duckdb plyvel numpy pyarrow h5py polars pandas zarr scipy safetensors usearch scikit-learn annoy".split()
NPM = "lmdb esbuild typescript@5.4.5 better-sqlite3".split()
DEBIAN = ("python3-venv python3-gdbm python3-bsddb3 mariadb-server redis-server redis-tools postgresql sqlite3 chromium nodejs npm "
          "default-jdk-headless maven gcc g++ golang git ripgrep xz-utils zstd cmake make perl vim").split()
MAVEN = ["net.java.dev.jna:jna:5.14.0", "com.h2database:h2:2.2.224"]
WORDS = {"PY": ROOT + "/venv/bin/python", "SYSPY": "/usr/bin/python3", "HERE": HERE, "ROOT": ROOT, "NODE": ROOT + "/npm/node_modules"}
DATA = f"{ROOT}/data-{os.getpid()}"
WATCHED, SECONDS, PAIRS = 5, 5, 2
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536"}
# What the doctor says against churn of memory.
KEPT = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}

def misuse(name, of, expect, data="nothing", limit=None, more=None, python="PY", script="misuse.py", **rest):
    """A Python case: `limit` in MiB, `more` is the remedied program's; `rest` overrides what a case has."""
    run = "{%s} {HERE}/%s run %s MODE HOW" if script == "misuse.py" else "{%s} {HERE}/%s %s MODE HOW"
    return dict(dict(name=name, kind="misuse", of=of, expect=expect, data=data, limit=limit, more=more or limit,
                     make="{%s} {HERE}/misuse.py make %s" % (python, data), run=run % (python, script, name.replace("-", "_"))), **rest)

def server(name, of, expect, limit=None, more=None, **rest):
    return misuse(name, of, expect, limit=limit, more=more, script="servers.py", python="SYSPY", **rest)

NODE = dict(make="node {HERE}/lookups.js make", run="node {HERE}/lookups.js MODE HOW")
BOLT = dict(make="{ROOT}/go/bolt make", run="{ROOT}/go/bolt MODE HOW")
JAVA = "java -Xms32m -Xmx64m -cp {ROOT}/java:{ROOT}/java/jna-5.14.0.jar Mapped "
HEAP = "java -Xms800m -Xmx800m OPTIONS -cp {ROOT}/java:{ROOT}/java/jna-5.14.0.jar Mapped heap MODE HOW"
MISUSES = [
    misuse("lmdb-lookups", "LMDB (Python)", "read_ahead_flood", "lmdb", 128),
    misuse("lmdb-scan", "LMDB (Python)", "random_scan", "lmdb"),
    misuse("lmdb-warm-up", "LMDB (Python)", "populate_after_random", "lmdb"),
    misuse("lmdb-hot", "LMDB (Python)", "random_recency", "lmdb", 96, settle=15),
    misuse("lmdb-scans", "LMDB (Python)", "thrash", "lmdb", 128, 900),
    misuse("lmdb-node", "LMDB (node)", "read_ahead_flood", "node", 160, **NODE),
    misuse("sqlite-lookups", "SQLite", "read_ahead_flood", "sqlite", 128),
    misuse("sqlite-scans", "SQLite", "thrash", "sqlite", 128, 900),
    misuse("rocksdb-lookups", "RocksDB (Python)", "read_ahead_flood", "rocksdb", 128),
    misuse("rocksdb-alone", "RocksDB (Python)", "fault_stall", "rocksdb", 128),
    misuse("leveldb-lookups", "LevelDB (Python)", "read_ahead_flood", "leveldb", 128),
    misuse("gdbm-lookups", "GDBM (Python)", "read_ahead_flood", "gdbm", 96, python="SYSPY"),
    misuse("bdb-lookups", "Berkeley DB (Python)", "double_buffering", "bdb", python="SYSPY"),
    misuse("duckdb-sums", "DuckDB", "double_buffering", "duckdb"),
    misuse("bolt-scan", "bbolt (Go)", "random_scan", "bolt", **BOLT),
    server("redis-saves", "Redis", "fork_large"),
    server("redis-full", "Redis", "headroom", 330, 900),
    server("postgres-scans", "PostgreSQL", "double_buffering"),
    server("mariadb-scans", "MariaDB", "double_buffering"),
    misuse("numpy-samples", "numpy", "read_ahead_flood", "matrix", 128),
    misuse("numpy-long-samples", "numpy", "read_ahead_flood", "matrix", 128),
    misuse("numpy-columns", "numpy", "read_ahead_flood", "matrix", 128),
    misuse("numpy-random-scan", "numpy", "random_scan", "matrix"),
    misuse("numpy-passes", "numpy", "thrash", "matrix", 160, 900),
    misuse("arrow-rows", "pyarrow", "read_ahead_flood", "arrow", 192),
    misuse("polars-rows", "polars", "read_ahead_flood", "arrow", 192),
    misuse("netcdf-points", "scipy", "read_ahead_flood", "netcdf", 160),
    misuse("safetensors-rows", "safetensors", "read_ahead_flood", "safetensors", 128),
    misuse("usearch-queries", "usearch", "read_ahead_flood", "usearch", 64),
    misuse("usearch-tight", "usearch", "thrash", "usearch", 96, 250),
    misuse("annoy-items", "annoy", "read_ahead_flood", "annoy", 96),
    misuse("numpy-small-files", "numpy", "fault_stall", "small"),
    misuse("numpy-temporaries", "numpy", "map_churn", env=MALLOC, remedied_env=KEPT),
    # Listed as healthy at first: the doctor found what nobody had planted, and was right.
    misuse("numpy-floats", "numpy", "map_churn", "matrix", remedied_env=KEPT),
    misuse("safetensors-load", "safetensors", "map_churn", remedied_env=KEPT),
    misuse("numpy-reopened", "numpy", "map_churn"),
    misuse("python-direct", "CPython", "direct_misaligned", "matrix", untimed="the plain one reads nothing"),
    misuse("numpy-huge", "numpy", "misaligned_huge", mount="huge"),
    misuse("numpy-truncated", "numpy", "truncated"),
    misuse("numpy-will-need", "numpy", "will_need_cap", "matrix", options=["--advice"]),
    misuse("numpy-sparse", "numpy", "page_tables"),
    misuse("numpy-holes", "numpy", "read_ahead_flood", limit=256),
    misuse("java-many-maps", "Java", "map_count", "matrix", run=JAVA + "maps MODE HOW"),
    misuse("h5py-points", "h5py", "double_buffering", "h5py"),
    misuse("java-lookups", "Java", "read_ahead_flood", "matrix", 192, run=JAVA + "lookups MODE HOW"),
    misuse("java-scan", "Java", "random_scan", "matrix", run=JAVA + "scan MODE HOW"),
    misuse("java-heap", "Java", "huge_off", options=["--deep"], run=HEAP.replace("OPTIONS", "-XX:-UseTransparentHugePages"),
           remedied_run=HEAP.replace("OPTIONS", "-XX:+UseTransparentHugePages")),
]

def healthy(name, of, run, data="nothing", make=None):
    return dict(name=name, kind="healthy", of=of, run=run, data=data, make=make or "{PY} {HERE}/misuse.py make " + data)

def again(command):
    """In a loop that ends where it fails, so that nothing is judged that does not run."""
    return "sh -c 'while %s; do :; done'" % command

def library(name, of, data="nothing"):
    return healthy(name, of, "{PY} {HERE}/healthy.py " + name.replace("-", "_"), data)

SQLITE_C = "{NODE}/better-sqlite3/deps/sqlite3/sqlite3.c"
PAGE = "data:text/html,<canvas id=c></canvas><script>setInterval(()=>{let a=[];for(let i=0;i<9e4;i++)a.push({i});c.title=a.length},50)</script>"
HEALTHY = [
    healthy("python-http", "CPython", "{PY} -m http.server 0 --bind 127.0.0.1"),
    library("json-objects", "CPython"),
    healthy("node-http", "node", "node -e 'require(\"http\").createServer().listen(0,\"127.0.0.1\")'"),
    healthy("node-objects", "node", "node -e 'for(;;){const m=new Map();for(let i=0;i<3e5;i++)m.set(String(i),{i});JSON.stringify([...m])}'"),
    healthy("typescript", "node", again("node {NODE}/typescript/bin/tsc --noEmit --skipLibCheck {NODE}/typescript/lib/typescript.d.ts >/dev/null")),
    healthy("esbuild", "Go", again("{NODE}/.bin/esbuild {NODE}/typescript/lib/typescript.js --bundle --platform=node --outfile=out.js --log-level=error")),
    healthy("chromium-page", "chromium", "chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=profile --remote-debugging-port=0 '" + PAGE + "'"),
    healthy("chromium-dump", "chromium", again("chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=profile --dump-dom about:blank >/dev/null 2>&1")),
    healthy("javac", "Java", again("javac -d classes -cp {ROOT}/java/jna-5.14.0.jar {HERE}/Mapped.java")),
    healthy("h2", "Java", "java -cp {ROOT}/java/h2-2.2.224.jar org.h2.tools.Shell -url jdbc:h2:mem: -sql 'SELECT count(a.x) FROM system_range(1,100000) a, system_range(1,100000) b WHERE mod(a.x, 7) = mod(b.x, 3)'"),
    healthy("gcc", "gcc", again("gcc -O2 -c " + SQLITE_C + " -o out.o")),
    healthy("g++", "g++", again("echo \"#include <regex>\" | g++ -O1 -x c++ -c - -o out.o")),
    healthy("cargo", "cargo", "sh -c 'cargo -q new hello 2>/dev/null; cd hello; while :; do touch src/main.rs; cargo -q build; done'"),
    healthy("go-build", "Go", "sh -c 'cd {ROOT}/go && while :; do GOCACHE=$OLDPWD/cache go build -a -o /dev/null .; done'"),
    healthy("git-gc", "git", "sh -c 'git init -q r; cd r; cp {NODE}/typescript/lib/*.js .; git add .; git -c user.name=a -c user.email=a@b commit -qm a; while :; do git gc -q --aggressive --prune=now; git fsck; done'"),
    healthy("sha256", "coreutils", again("sha256sum matrix.bin >/dev/null"), "matrix"),
    healthy("tar", "tar", again("tar cf - -C / {NODE} 2>/dev/null | wc -c >/dev/null")),
    healthy("xz", "xz", again("xz -1 -T2 -c matrix.bin >/dev/null"), "matrix"),
    healthy("zstd", "zstd", again("zstd -q -3 -c matrix.bin >/dev/null"), "matrix"),
    healthy("sort", "coreutils", "sh -c 'base64 matrix.bin | head -c 100000000 > lines; while :; do sort -S 64M -T . lines >/dev/null; done'", "matrix"),
    healthy("grep", "grep", again("grep -rc nothing {NODE} >/dev/null")),
    healthy("ripgrep", "ripgrep", again("rg -c nothing {NODE} >/dev/null")),
    healthy("perl", "perl", "perl -e 'while(1){my %h;$h{$_}=$_*2 for 1..200000}'"),
    healthy("vim", "vim", "script -qc 'vim -n -u NONE {HERE}/misuse.py' /dev/null"),
    healthy("sqlite-rows", "SQLite", "{PY} {HERE}/healthy.py sqlite_rows", "sqlite"),
    library("lmdb-warm", "LMDB", "lmdb"), library("lmdb-cold-scan", "LMDB", "lmdb"),
    library("rocksdb-filling", "RocksDB"), library("leveldb-filling", "LevelDB"), library("duckdb-groups", "DuckDB"),
    healthy("redis-bench", "Redis", "{SYSPY} {HERE}/servers.py redis_bench plain forever"),
    healthy("postgres-bench", "PostgreSQL", "{SYSPY} {HERE}/servers.py postgres_bench plain forever"),
    healthy("mariadb-lookups", "MariaDB", "{SYSPY} {HERE}/servers.py mariadb_lookups plain forever"),
    library("numpy-product", "numpy"), library("numpy-pass", "numpy", "matrix"), library("pandas-groups", "pandas"),
    library("polars-groups", "polars"), library("parquet", "pyarrow"), library("h5py-rows", "h5py"), library("zarr-rows", "zarr"),
    library("scipy-fft", "scipy"), library("sklearn-forest", "scikit-learn"),
]

class Skipped(Exception):
    pass

def filled(command):
    for name, word in WORDS.items():
        command = command.replace("{" + name + "}", word)
    return command

class Group:
    """A memory cgroup, whose processes are ours: they end with it."""
    def __init__(self, name, limit_mib):
        self.path = f"{GROUPS}/majorfault-programs-{os.getpid()}-{name}"
        os.mkdir(self.path)
        if limit_mib:
            with open(self.path + "/memory.limit_in_bytes", "w") as file:
                file.write(f"{limit_mib}M")
    def enter(self):
        with open(self.path + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    def __enter__(self):
        return self
    def __exit__(self, *_):
        for _ in range(200):
            pids = open(self.path + "/cgroup.procs").read().split()
            for pid in pids:
                try: os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError: pass
            if not pids: break
            time.sleep(0.05)
        for _ in range(40):
            try: return os.rmdir(self.path)
            except OSError: time.sleep(0.05)

def cold(directory):
    """Drops the directory's files from the page cache."""
    os.sync()
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                file = os.open(path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)

def made(case):
    """The case's directory with its data."""
    directory = f"{DATA}/{case['data']}" if case["data"] != "nothing" else f"{DATA}/of-{case['name']}"
    if not os.path.exists(directory):
        os.makedirs(directory + ".part", exist_ok=True)
        run = subprocess.run(["sh", "-c", filled(case["make"])], cwd=directory + ".part", env=environment(), capture_output=True, text=True)
        if run.returncode != 0:
            shutil.rmtree(directory + ".part")
            raise Skipped(f"its data could not be made: {run.stderr.strip().splitlines()[-1:]}")
        os.rename(directory + ".part", directory)
    return directory

def environment(more=None):
    return dict(os.environ, MODULES=WORDS["NODE"], OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2", PYTHONDONTWRITEBYTECODE="1", **(more or {}))

def started(case, group, directory, mode, how):
    is_remedied = mode == "remedied"
    command = filled(case.get("remedied_run", case["run"]) if is_remedied else case["run"]).replace("MODE", mode).replace("HOW", how)
    if os.path.exists(directory + "/ready"): os.remove(directory + "/ready")
    if case.get("mount"):
        folder = f"{directory}/{case['mount']}"
        os.makedirs(folder, exist_ok=True)
        if not os.path.ismount(folder):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "huge=always", "tmpfs", folder], check=True)
    cold(directory)
    env = environment(case.get("remedied_env" if is_remedied else "env"))
    return subprocess.Popen(["sh", "-c", "exec " + command], cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE if case["kind"] == "misuse" else subprocess.DEVNULL, text=True, preexec_fn=group.enter)

def when_ready(case, child, directory):
    if case["kind"] == "healthy" and "servers.py" not in case["run"]:
        return time.sleep(2)
    for _ in range(4000):
        if os.path.exists(directory + "/ready"): return None
        if child.poll() is not None: break
        time.sleep(0.05)
    errors = (child.stderr.read().strip().splitlines() if child.stderr and child.poll() is not None else [])[-1:]
    raise Skipped(f"it did not begin: {errors}")

def watched(case, doctor):
    directory = made(case)
    with Group(case["name"], case.get("limit")) as group:
        child = started(case, group, directory, "plain", "forever")
        when_ready(case, child, directory)
        time.sleep(case.get("settle", 0))
        seen = subprocess.run([doctor, "doctor", "--json", "--for", f"{WATCHED}s", *case.get("options", []), str(child.pid)], capture_output=True, text=True)
        if not seen.stdout: raise Skipped(f"the doctor says: {seen.stderr.strip()[:200]}")
        report = json.loads(seen.stdout)
        if report["target"]["ended"] or child.poll() is not None: raise Skipped("it ended during the watch")
        return report

def timed(case, mode, how, most=120):
    """Units and seconds; more than `most` seconds are told as that many."""
    directory = made(case)
    with Group(case["name"], case["more"] if mode == "remedied" else case["limit"]) as group:
        child = started(case, group, directory, mode, how)
        when_ready(case, child, directory)
        try: words = child.communicate(timeout=most)[0].split()
        except subprocess.TimeoutExpired: return None, float(most)
        if len(words) != 2: raise Skipped(f"{mode}: ended without a time (exit {child.returncode})")
        return int(words[0]), float(words[1])

def gains(case):
    """How many times as fast the remedied program does what the plain one does, by pair."""
    units, seconds = timed(case, "plain", f"s={SECONDS}")
    if not units: return []
    ratios = [seconds / timed(case, "remedied", f"n={units}")[1]]
    for _ in range(PAIRS - 1):
        seconds = timed(case, "plain", f"n={units}")[1]
        ratios.append(seconds / timed(case, "remedied", f"n={units}")[1])
    return ratios

def judged(case, doctor, is_timed):
    report = watched(case, doctor)
    findings = [{key: it[key] for key in ("rule", "severity", "scope", "what", "remedy", "backing", "gain_at_most", "consequences")} | {"evidence": [fact["text"] if isinstance(fact, dict) and "text" in fact else fact for fact in it["evidence"]]} for it in report["findings"]]
    result = dict(name=case["name"], kind=case["kind"], of=case["of"], findings=findings, load=os.getloadavg()[0])
    if case["kind"] == "healthy":
        return result | {"right": not any(it["severity"] != "note" for it in findings)}
    top = findings[0] if findings else None
    result |= dict(expect=case["expect"], right=bool(top) and top["rule"] == case["expect"], promised=top and top["gain_at_most"])
    return result | {"gains": gains(case) if is_timed and not case.get("untimed") else []}

def told(result):
    if "skipped" in result: return f"| {result['name']} | {result['of']} | skipped: {result['skipped']} | | | |"
    found = ", ".join(f"{it['rule']} ({it['severity']})" for it in result["findings"]) or "nothing"
    promised, gains = result.get("promised"), result.get("gains", [])
    figures = [f"{promised:.1f} x" if promised else "", " / ".join(f"{gain:.2f}" for gain in gains)]
    return f"| {result['name']} | {result['of']} | {found} | {figures[0]} | {figures[1]} | {'yes' if result['right'] else '**no**'} |"

def totals(results):
    done = [it for it in results if "skipped" not in it]
    well, ill = ([it for it in done if it["kind"] == kind] for kind in ("healthy", "misuse"))
    middle = lambda it: statistics.median(it["gains"])
    promising = [it for it in ill if it.get("promised") and it["gains"]]
    kept = [it for it in promising if it["right"] and it["promised"] / 2 <= middle(it) <= it["promised"] * 2]
    lost = [it["name"] for it in ill if it["gains"] and middle(it) < 0.95]
    return (f"healthy: {len(well)}, without a warning {sum(it['right'] for it in well)}; misuses: {len(ill)}, true cause first "
            f"{sum(it['right'] for it in ill)}; a gain promised in {len(promising)}, kept within a factor of 2 in {len(kept)}; "
            f"slower with the remedy: {', '.join(lost) or 'none'}; skipped {len(results) - len(done)}; load {os.getloadavg()[0]:.1f}")

def install():
    run = lambda command, cwd=ROOT: subprocess.run(command, cwd=cwd, check=True)
    for folder in ("npm", "java", "go"): os.makedirs(f"{ROOT}/{folder}", exist_ok=True)
    run(["apt-get", "install", "-y", "--no-install-recommends", *DEBIAN])
    run([sys.executable, "-m", "venv", "venv"])
    run(["venv/bin/pip", "install", "-q", *PYPI])
    run(["npm", "install", "--no-fund", "--no-audit", *NPM], ROOT + "/npm")
    for artifact in MAVEN: run(["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", "-DoutputDirectory=."], ROOT + "/java")
    run(["javac", "-cp", "jna-5.14.0.jar", "-d", ".", HERE + "/Mapped.java"], ROOT + "/java")
    shutil.copy(HERE + "/bolt.go", ROOT + "/go/main.go")
    if not os.path.exists(ROOT + "/go/go.mod"): run(["go", "mod", "init", "bolt"], ROOT + "/go")
    run(["go", "get", "go.etcd.io/bbolt@v1.3.11"], ROOT + "/go")
    run(["go", "build", "-o", "bolt", "."], ROOT + "/go")

def clean(directory):
    huge = directory + "/huge"
    if os.path.ismount(huge): subprocess.run(["umount", huge])
    shutil.rmtree(directory, ignore_errors=True)

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("majorfault"), parser.add_argument("--install", action="store_true"), parser.add_argument("--only", action="append")
    parser.add_argument("--kind", choices=["healthy", "misuse"]), parser.add_argument("--json"), parser.add_argument("--keep", action="store_true")
    parser.add_argument("--untimed", action="store_true")
    given = parser.parse_args()
    if given.install: install()
    doctor = os.path.abspath(given.majorfault)
    # Cases with the same data follow each other, so that each is made once and removed after the last.
    cases = [case for case in HEALTHY + MISUSES if (not given.only or case["name"] in given.only) and (not given.kind or case["kind"] == given.kind)]
    order = list(dict.fromkeys(case["data"] for case in cases))
    cases.sort(key=lambda case: order.index(case["data"]))
    results = []
    print("| program | of | findings | promised | measured, by pair | right |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for number, case in enumerate(cases):
        try: result = judged(case, doctor, not given.untimed)
        except (Skipped, OSError, subprocess.SubprocessError) as error: result = dict(name=case["name"], kind=case["kind"], of=case["of"], skipped=str(error)[:160])
        results.append(result)
        print(told(result), flush=True)
        is_last = not any(other["data"] == case["data"] for other in cases[number + 1:])
        if not given.keep and (is_last or case["data"] == "nothing"):
            clean(f"{DATA}/{case['data'] if case['data'] != 'nothing' else 'of-' + case['name']}")
        if given.json:
            with open(given.json, "w") as file: json.dump(results, file, indent=1)
    if not given.keep: shutil.rmtree(DATA, ignore_errors=True)
    print("\n" + totals(results))

if __name__ == "__main__":
    main()
