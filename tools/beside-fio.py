#!/usr/bin/env python3
"""Twenty combinations of order, block, depth and way, each of our methods beside fio doing the same, in turns.

    python3 tools/beside-fio.py [--majorfault target/release/majorfault] [--size 256m] [--runtime 500ms] [--runs 6]

Printed is each combination with the median of the paired ratios ours / fio (accesses a second of the visit), and the least and the
greatest pair; a run that is not valid is left out with its pair, and counted.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

# Order, block, depth, our method, fio's parameters.
COMBINATIONS = [
    ("randread", "4k", 1, "direct", "engine=psync,direct=on"),
    ("randread", "64k", 1, "direct", "engine=psync,direct=on"),
    ("randread", "1m", 1, "direct", "engine=psync,direct=on"),
    ("read", "4k", 1, "direct", "engine=psync,direct=on"),
    ("read", "1m", 1, "direct", "engine=psync,direct=on"),
    ("randread", "4k", 1, "uring", "engine=io_uring,direct=on"),
    ("randread", "4k", 8, "uring", "engine=io_uring,direct=on"),
    ("randread", "4k", 32, "uring", "engine=io_uring,direct=on"),
    ("randread", "64k", 8, "uring", "engine=io_uring,direct=on"),
    ("read", "1m", 1, "uring", "engine=io_uring,direct=on"),
    ("read", "1m", 8, "uring", "engine=io_uring,direct=on"),
    ("randread", "4k", 1, "pread:advice=random", "engine=psync,direct=off,hint=random"),
    ("read", "1m", 1, "pread", "engine=psync,direct=off"),
    ("randread", "4k", 1, "mmap:advice=random", "engine=mmap,direct=off,hint=random"),
    ("read", "64k", 1, "mmap", "engine=mmap,direct=off"),
    ("randwrite", "4k", 1, "direct", "engine=psync,direct=on"),
    ("write", "1m", 1, "direct", "engine=psync,direct=on"),
    ("randwrite", "4k", 32, "uring", "engine=io_uring,direct=on"),
    ("write", "1m", 8, "uring", "engine=io_uring,direct=on"),
    ("write", "1m", 1, "pread", "engine=psync,direct=off"),
]


def rate(record):
    visit = next(phase for phase in record["phases"] if phase["name"] == "visit")
    return sum(thread["accesses"] for thread in record["threads"]) * 1e9 / visit["wall_ns"]


def is_valid(record):
    return record["outcome"] == "done" and all(gate["finding"] != "spoiled" for gate in record["gates"])


def measured(args, data, combination, work):
    rw, block, depth, method, fio = combination
    records = work / "records.jsonl"
    records.unlink(missing_ok=True)
    depth_of = f":depth={depth}" if method == "uring" else ""
    command = [args.majorfault, "compare", "-q", "--rw", rw, "--bs", block, "--iodepth", depth, "--cache", "cold", "--method", method + depth_of,
               "--peer", f"fio:{fio}", "--runs", args.runs, "--runtime", args.runtime, "--records", records]
    command += [data] if rw in ("read", "randread") else ["--size", args.size, "--dir", work, "--memory", "none"]
    said = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if said.returncode not in (0, 4):
        return None, 0, said.stderr.strip().splitlines()[-1] if said.stderr.strip() else f"exit code {said.returncode}"
    found = [json.loads(line) for line in records.read_text().splitlines()]
    valid = [record for record in found if is_valid(record)]
    turns = {}
    for record in valid:
        turns.setdefault(record["trial"]["repetition"], {})["peer" in record["trial"]["arm"]] = record
    pairs = [rate(turn[False]) / rate(turn[True]) for turn in turns.values() if len(turn) == 2]
    return pairs, len(found) - len(valid), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--majorfault", default="target/release/majorfault")
    parser.add_argument("--size", default="256m")
    parser.add_argument("--runtime", default="500ms")
    parser.add_argument("--runs", default="6")
    parser.add_argument("--dir", default="/var/tmp")
    args = parser.parse_args()
    args.majorfault = os.path.abspath(args.majorfault)
    work = Path(tempfile.mkdtemp(prefix="beside-fio-", dir=args.dir))
    try:
        data = work / "data"
        with open(data, "wb") as out:
            for _ in range(256):
                out.write(os.urandom(1 << 20))
            os.fsync(out.fileno())
        print("| order | block | depth | method | fio | ours / fio | pairs | not valid |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
        for combination in COMBINATIONS:
            pairs, spoiled, why = measured(args, data, combination, work)
            told = f"{median(pairs):.2f} ({min(pairs):.2f}–{max(pairs):.2f})" if pairs else (why or "–")
            print("| " + " | ".join(map(str, [*combination, told, len(pairs or []), spoiled])) + " |", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
