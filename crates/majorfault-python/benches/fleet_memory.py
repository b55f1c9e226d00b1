#!/usr/bin/env python3
"""Peak memory of each step over the records of many hosts: fleet_memory.py [SMALL] [LARGE] (1000 and 10000).

The hosts are made from the real records of `records/`, seeded: each has the runs of S0's first cells with its own kernel, device, file system and
times; from one kernel on a verdict flips. Each step runs in a process of its own, once for SMALL and once for LARGE hosts. Fails where a step
takes more memory for the further hosts than 16 MiB, and for each of them a fiftieth of what its records are (a twentieth where DuckDB reads a file
of each). `--folder` (in /var/tmp) is where they are made and removed.
"""

import argparse
import contextlib
import gzip
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CELLS = ("mmap", "buffer", "mmap, 1 thread", "buffer, 1 thread")
KERNELS = [f"6.{minor}.{patch}" for minor in range(1, 19) for patch in (3, 20)]
SLOWER_UNTIL = "6.12.3"
ONCE = 16 << 20
SHARE = 50
"""What part of a host's records a step may keep for each host, besides ONCE."""


def real():
    """The runs of these cells in the first whole session."""
    with gzip.open(sorted((ROOT / "records").glob("*standard-1.jsonl.gz"))[0], "rt") as file:
        records = [record for line in file if (record := json.loads(line)).get("cell", {}).get("experiment") == "S0" and record["cell"]["name"] in CELLS]
    return [record for record in records if record["trial"]["repetition"] < 6]


def host(number, records):
    """What host NUMBER leaves, compressed, and how long it is in plain text."""
    dice = random.Random(number)
    kernel, device, filesystem = dice.choice(KERNELS), dice.choice(["vda", "sda", "nvme0n1"]), dice.choice(["ext4", "xfs"])
    slower = 1.6 if KERNELS.index(kernel) < KERNELS.index(SLOWER_UNTIL) else 0.6
    session, cpus = f"{1_790_000_000 + number}-{dice.randrange(4_000_000)}", dice.choice([2, 8, 64])
    lines = []
    for record in records:
        record["session"] = session
        record["began_unix_s"] = 1_790_000_000 + number
        record["machine"] |= {"kernel": kernel, "device": device, "filesystem": filesystem, "cpus": cpus}
        for phase in record["phases"]:
            is_mapped = record["cell"]["name"].startswith("mmap")
            phase["wall_ns"] = int(2e8 * (slower if is_mapped else 1.0) * dice.uniform(0.98, 1.02))
        lines.append(json.dumps(record) + "\n")
    text = "".join(lines).encode()
    return gzip.compress(text, 1, mtime=0), len(text)


def make(folder, count):
    """The hosts' files; the mean length of one in plain text."""
    folder.mkdir(parents=True)
    records, length = real(), 0
    for number in range(count):
        packed, plain = host(number, records)
        (folder / f"host{number:05}.jsonl.gz").write_bytes(packed)
        length += plain
    return length // count


# The steps; each is run as a process: fleet_memory.py --step NAME MADE OUT.


def _sent(name, jobs, timeout, tool):
    """In the place of the jobs: what the host would have left."""
    from majorfault import fleet

    return [fleet.Ran(name, job, 0, "", 24) for job in jobs], Path(tool, f"{name}.jsonl.gz").read_bytes()


def sweep(made, out):
    """All hosts are two workers. Scheduler and workers are other processes: the scheduler's 20 KiB for each task are Dask's, whatever a task gives."""
    from distributed import Client

    from majorfault import fleet

    names = sorted(path.name.removesuffix(".jsonl.gz") for path in made.iterdir())
    common = ["--scheduler-file", str(out / "scheduler.json"), "--no-dashboard"]
    parts = [["dask_scheduler", "--port", "0", *common], ["dask_worker", "--nworkers", "2", "--nthreads", "1", "--local-directory", str(out), *common]]
    with contextlib.ExitStack() as stack:
        for name, *arguments in parts:
            part = subprocess.Popen([sys.executable, "-m", f"distributed.cli.{name}", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(part.wait)
            stack.callback(part.terminate)
        client = stack.enter_context(Client(scheduler_file=str(out / "scheduler.json"), timeout=60))
        client.wait_for_workers(2, timeout=60)
        addresses = sorted(client.scheduler_info()["workers"])
        fleet.hosts = lambda _: {name: addresses[number % len(addresses)] for number, name in enumerate(names)}
        fleet._on_host = _sent
        swept = fleet.sweep(["reproduce S0"], client, out / "records", tool=str(made))
    return len(swept.rows)


def parquet(made, out):
    from majorfault import fleet

    return fleet.parquet(made, out / "runs.parquet")


def judge(made, out):
    from majorfault import fleet

    return json.loads(Path(fleet.judge(made, out / "judged").drift).read_text())["flips"]


QUERIES = [
    "SELECT kernel, cell, count(*), median(phases[2].wall_ns) FROM runs GROUP BY ALL ORDER BY ALL",
    "SELECT cell, phase, sum(wall_ns), sum(counters['major_faults']) FROM phases GROUP BY ALL ORDER BY ALL",
    "SELECT id, kernel, count(*), median(figure) FROM claims GROUP BY ALL ORDER BY ALL",
    "SELECT count(*) FROM drift WHERE flips",
]


def queries(made, out):
    from majorfault import fleet

    connection = fleet.database(out / "runs.parquet", out / "judged")
    return sum(len(connection.sql(query).fetchall()) for query in QUERIES)


def queries_of_records(made, out):
    from majorfault import fleet

    connection = fleet.database(made)
    return sum(len(connection.sql(query).fetchall()) for query in QUERIES[:2])


STEPS = {"sweep": sweep, "parquet": parquet, "report --drift": judge, "queries, Parquet": queries, "queries, records": queries_of_records}


def step(name, made, out):
    """What it gave, its seconds, and the most memory that its process or a child of it had, in bytes."""
    began = time.monotonic()
    typed = [sys.executable, __file__, "--step", name, str(made), str(out)]
    ran = subprocess.run(typed, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{name}: {ran.stderr[-3000:]}")
    gave, peak = ran.stdout.split()[-2:]
    return int(gave), time.monotonic() - began, int(peak)


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("hosts", nargs="*", type=int, default=[1000, 10000])
    asked.add_argument("--folder", type=Path)
    small, large = asked.parse_args().hosts
    folder = Path(tempfile.mkdtemp(prefix="majorfault-fleet-memory-", dir=asked.parse_args().folder or "/var/tmp"))
    found, length = {}, 0
    try:
        for count in (small, large):
            made, out = folder / f"made{count}", folder / f"out{count}"
            out.mkdir()
            length = make(made, count)
            for name in STEPS:
                found[name, count] = step(name, made, out)
            shutil.rmtree(made)
            shutil.rmtree(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{small} and {large} hosts, each with {length / 1024:.0f} KiB of records (24 runs); peak memory of the step's largest process")
    print(f"{'step':<18}{f'{small} hosts':>14}{f'{large} hosts':>14}{'a further host':>17}{'time':>9}")
    grown = []
    for name in STEPS:
        (_, _, first), (_, seconds, second) = found[name, small], found[name, large]
        each = (second - first) / (large - small)
        print(f"{name:<18}{first / 2**20:>10.1f} MiB{second / 2**20:>10.1f} MiB{each / 1024:>13.2f} KiB{seconds:>7.1f} s")
        if second - first > ONCE + (large - small) * length / SHARE:
            grown.append(f"{name}: {each:.0f} bytes more for each host, of {length} that its records have")
    sys.exit("memory grows with the number of hosts: " + "; ".join(grown) if grown else 0)


def peak_bytes(name):
    # The workers of a sweep stand for the hosts, each of which has its own records alone; here two have those of all.
    whose = (resource.RUSAGE_SELF,) if name == "sweep" else (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in whose)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        gave = STEPS[sys.argv[2]](Path(sys.argv[3]), Path(sys.argv[4]))
        print(gave, peak_bytes(sys.argv[2]))
        sys.stdout.flush()
        os._exit(0)
    main()
