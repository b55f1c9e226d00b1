#!/usr/bin/env python3
"""Programs of others within half of the memory that they take: with swap alone, with swap alone once more, and with advice.

    python3 tools/beyond-programs.py [--runs 6] [--only NAME...] [--dir /var/tmp] [--share 50] [--bench PROGRAM]

Each program (Debian's: sort, samtools, python3-numpy, a JVM, redis, gcc, sqlite3) runs once without a limit worth the name, for its peak; then
`cargo bench -p majorfault-lab --bench beyond_memory` compares the arms within that share of it, in random order, with the same output
or none. Data is seeded, made in a directory of our own, and removed at the end. What is not installed is said. Needs root.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

JAVA = """
public class Passes {
    public static void main(String[] words) {
        long[] all = new long[12 << 20];
        for (int at = 0; at < all.length; at++) all[at] = at * 0x9E3779B97F4A7C15L;
        long sum = 0;
        for (int pass = 0; pass < 4; pass++)
            for (int at = 0; at < all.length; at++) sum += all[at] >>> pass;
        System.out.println(sum);
    }
}
"""

NUMPY = """
import numpy
a = numpy.arange(12 << 20, dtype=numpy.float64)
print(sum(float((a * k).sum()) for k in range(1, 4)))
"""

SQL = """
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 700000) insert into t select i, hex(i * 2654435761 % 4294967296) || hex(zeroblob(32)) from n;
create index u on t(b);
select sum(length(b)), max(b) from t;
select count(*) from t where b > '8';
"""


def lines_of_numbers(path, count):
    draw = random.Random(7)
    with open(path, "w", encoding="ascii") as out:
        for _ in range(count):
            out.write(f"{draw.getrandbits(64):016x}{draw.getrandbits(64):016x}\n")


def alignments(path, count):
    draw = random.Random(7)
    with open(path, "w", encoding="ascii") as out:
        out.write("@SQ\tSN:c\tLN:250000000\n")
        for number in range(count):
            bases = "".join(draw.choices("ACGT", k=100))
            out.write(f"r{number}\t0\tc\t{draw.randrange(1, 249_000_000)}\t60\t100M\t*\t0\t0\t{bases}\t{'I' * 100}\n")


def functions(path, count):
    with open(path, "w", encoding="ascii") as out:
        for number in range(count):
            out.write(f"int f{number}(int *a, int n) {{ int s = {number}; for (int i = 0; i < n; i++) {{ s += a[i] * {number % 97 + 1};"
                      f" if (s > {number * 31}) s ^= a[n - 1 - i]; else s -= i; }} return s; }}\n")
        out.write("int main(void) { int a[4] = {1, 2, 3, 4}; int s = 0;\n")
        out.writelines(f"s += f{number}(a, 4);\n" for number in range(count))
        out.write("return s & 1; }\n")


# Name, what must be installed, what makes its data, and the command of the shell: it prints one word.
PROGRAMS = [
    ("sort", ["sort"], lambda dir: lines_of_numbers(dir / "lines", 2_000_000),
     "sort -S 400M --parallel=1 lines | sha256sum"),
    ("samtools sort", ["samtools"], lambda dir: alignments(dir / "reads.sam", 100_000),
     "samtools sort -m 400M -O sam --no-PG reads.sam 2>/dev/null | sha256sum"),
    ("numpy", ["python3"], lambda dir: (dir / "passes.py").write_text(NUMPY), "/usr/bin/python3 passes.py"),
    ("jvm", ["java", "javac"], lambda dir: ((dir / "Passes.java").write_text(JAVA), subprocess.run(["javac", "Passes.java"], cwd=dir, check=True)),
     "java -Xms160m -Xmx160m -XX:+UseSerialGC -XX:+AlwaysPreTouch Passes"),
    ("redis", ["redis-server", "redis-cli"], lambda dir: None,
     "redis-server --port 0 --unixsocket ./socket --save '' --daemonize no --loglevel warning --enable-debug-command yes >/dev/null & "
     "until redis-cli -s ./socket ping 2>/dev/null | grep -q PONG; do sleep 0.05; done; "
     "redis-cli -s ./socket debug populate 250000 key 200 >/dev/null; "
     "redis-cli -s ./socket eval \"local n = 0 for i = 0, 249999, 7 do n = n + #redis.call('GET', 'key:' .. i) end return n\" 0; "
     "redis-cli -s ./socket shutdown nosave; wait"),
    ("gcc", ["gcc"], lambda dir: functions(dir / "many.c", 1500), "gcc -O1 -S -o - many.c | sha256sum"),
    ("sqlite3", ["sqlite3"], lambda dir: (dir / "work.sql").write_text(SQL), "sqlite3 :memory: < work.sql | sha256sum"),
]


def peak_of(args, command, dir):
    """The most memory that it takes where there is plenty, in MiB; none where it fails."""
    call = [args.majorfault, "run", "--json", "--no-advice", "--memory", "8g", "--", "sh", "-c", command]
    said = subprocess.run(call, cwd=dir, capture_output=True, text=True)
    if said.returncode != 0:
        return None, said.stderr.strip()[-300:]
    document = json.loads(said.stderr[said.stderr.index("{"):])
    return document["most_demand_bytes"] / 2**20, ""


def compared(args, name, command, dir, limit):
    # The bench runs it in its own directory for data.
    call = [*args.bench, "--runs", str(args.runs), "--block", "256", "--limit", str(limit), "--dir", str(dir), "sh:" + command]
    said = subprocess.run(call, capture_output=True, text=True)
    lines = [line.replace("sh:" + command, name) for line in said.stdout.splitlines()]
    return lines[2:] if len(lines) > 2 else [f"{name}: NOT MEASURED: {said.stderr.strip()[-300:]}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--share", type=int, default=50, help="the limit, in percent of the peak")
    parser.add_argument("--majorfault", default="target/release/majorfault")
    parser.add_argument("--bench", nargs="*", default=["cargo", "bench", "-q", "-p", "majorfault-lab", "--bench", "beyond_memory", "--"])
    args = parser.parse_args()
    args.majorfault = os.path.abspath(args.majorfault)
    failed = False
    for name, needs, prepare, command in PROGRAMS:
        if args.only and name not in args.only:
            continue
        if lacks := [program for program in needs if shutil.which(program) is None]:
            print(f"{name}: not installed: {', '.join(lacks)}", flush=True)
            continue
        dir = Path(tempfile.mkdtemp(prefix="beyond-programs-", dir=args.dir))
        try:
            prepare(dir)
            peak, why = peak_of(args, command, dir)
            if peak is None:
                failed = True
                print(f"{name}: NOT MEASURED: {why}", flush=True)
                continue
            limit = max(int(peak * args.share / 100), 4)
            print(f"{name}: peak {peak:.0f} MiB, limit {limit} MiB", flush=True)
            for line in compared(args, name, command, dir, limit):
                failed |= "NOT MEASURED" in line
                print("  " + line, flush=True)
        finally:
            shutil.rmtree(dir, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
