#!/usr/bin/env python3
"""Twenty combinations of order, block, depth and way, each of our methods beside fio doing the same, in turns.

    python3 tools/beside-fio.py [--majorfault target/release/majorfault] [--size 256m] [--runtime 500ms] [--runs 6]
    python3 tools/beside-fio.py --looking

Printed is each combination with the median of the paired ratios ours / fio (accesses a second; of writes until the last is durable, as
fio's own time with end_fsync is), and the least and the greatest pair; a run that is not valid is left out with its pair, and counted.

fio does not look at what it reads, our methods hand it to the program, which adds it up. `--looking` shows what that costs here: random
O_DIRECT reads into one buffer of huge pages, with and without adding the bytes up, in turns (needs numpy).
"""

import argparse
import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
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


def rate(record, writes):
    """Accesses a second: of reads over the visit, of writes until they are durable, which is when ours are closed."""
    counted = ("visit", "close") if writes else ("visit",)
    time = sum(phase["wall_ns"] for phase in record["phases"] if phase["name"] in counted)
    return sum(thread["accesses"] for thread in record["threads"]) * 1e9 / time


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
    writes = "write" in rw
    pairs = [rate(turn[False], writes) / rate(turn[True], writes) for turn in turns.values() if len(turn) == 2]
    return pairs, len(found) - len(valid), ""


def looking(data, runs):
    """Reads a second without and with adding up what was read."""
    import numpy

    buffer = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    buffer.madvise(mmap.MADV_HUGEPAGE)
    words = numpy.frombuffer(buffer, dtype=numpy.uint64)
    words[:] = 1
    base = -words.ctypes.data % (2 << 20)
    size = os.path.getsize(data)
    fd = os.open(data, os.O_RDONLY | os.O_DIRECT)
    print("| block | reads/s | and added up | ratio |\n| --- | --- | --- | --- |")
    for block in (64 << 10, 1 << 20):
        view = [memoryview(buffer)[base : base + block]]
        part = words[base // 8 : (base + block) // 8]
        rates = {False: [], True: []}
        for turn in range(2 * runs):
            looks, draw, count, began = turn % 2 == 1, random.Random(turn // 2), 0, time.monotonic()
            while time.monotonic() - began < 0.3:
                os.preadv(fd, view, draw.randrange(size // block) * block)
                count += 1
                if looks:
                    part.sum()
            rates[looks].append(count / (time.monotonic() - began))
        ratios = [one / other for one, other in zip(rates[True], rates[False])]
        told = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"| {block >> 10}k | {median(rates[False]):.0f} | {median(rates[True]):.0f} | {told} |", flush=True)
    os.close(fd)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--majorfault", default="target/release/majorfault")
    parser.add_argument("--size", default="256m")
    parser.add_argument("--runtime", default="500ms")
    parser.add_argument("--runs", default="6")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--looking", action="store_true")
    args = parser.parse_args()
    args.majorfault = os.path.abspath(args.majorfault)
    work = Path(tempfile.mkdtemp(prefix="beside-fio-", dir=args.dir))
    try:
        data = work / "data"
        with open(data, "wb") as out:
            for _ in range(256):
                out.write(os.urandom(1 << 20))
            os.fsync(out.fileno())
        if args.looking:
            looking(data, int(args.runs))
            return 0
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
