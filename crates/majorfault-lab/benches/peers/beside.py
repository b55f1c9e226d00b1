#!/usr/bin/env python3
"""Our methods beside built peers, in turns in one run: `uring` beside fio, `pool` beside vmcache.

    python3 crates/majorfault-lab/benches/peers/beside.py --fio /usr/bin/fio --vmcache ~/vmcache/vmcache
        [--majorfault target/release/majorfault] [--runs 6] [--seconds 2] [--size 4g] [--budget 1g]
        [--threads 1,2,16,64] [--dir /var/tmp]

It fetches and builds nothing: a peer whose path is not given is left out. vmcache is https://github.com/viktorleis/vmcache, built by its
own Makefile (libaio).

fio runs as the peer of `majorfault compare`, with what is best for it (registered files and buffers, buffers of huge pages), and once more
with `sqthread_poll`: random 4 KiB at depth 1, 8, 32 and 64, and 1 MiB in order at depth 1 and 8. Printed are accesses a second and processor
time an access, ours over fio's, paired by turn: the median, the least and the greatest.

vmcache runs its random lookups (RNDREAD) over as many tuples as fill the file, with PHYSGB as its budget; our pool draws random pages of a file
that long with the same budget, each thread with one read under way as vmcache's threads have, and with 32. What can be compared is how many pages
each brings from the device a second: vmcache finds them by a tree whose inner pages stay in memory, our workload by number.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

PAGE = 4096
# Bytes of a tuple in vmcache's leaves: 8 of key, 120 of payload and some for the slot, in leaves that are split at the end.
TUPLE = 140
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text):
    return int(text[:-1]) * UNITS[text[-1].lower()] if text[-1].lower() in UNITS else int(text)


def told(ratios):
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else "–"


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def is_valid(record):
    return record["outcome"] == "done" and all(gate["finding"] != "spoiled" for gate in record["gates"])


def compared(args, work, words, path=None):
    """The valid records of a session, and why there are none."""
    records = work / "records.jsonl"
    records.unlink(missing_ok=True)
    command = [args.majorfault, "compare", "-q", "--records", records, "--runtime", f"{args.seconds}s", "--memory", "none", *words]
    said = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **({"PATH": path} if path else {})})
    if not records.exists():
        return [], said.stderr.strip().splitlines()[-1] if said.stderr.strip() else f"exit code {said.returncode}"
    found = [json.loads(line) for line in records.read_text().splitlines()]
    valid = [record for record in found if is_valid(record)]
    return valid, "" if valid else next((gate["says"] for record in found for gate in record["gates"] if gate["finding"] == "spoiled"), str(found[0]["outcome"]))


def visit(record):
    return next(phase for phase in record["phases"] if phase["name"] == "visit")


def figures(record):
    """Accesses a second, processor nanoseconds an access, pages read a second."""
    seconds = visit(record)["wall_ns"] / 1e9
    accesses = sum(thread["accesses"] for thread in record["threads"])
    counters = visit(record)["counters"]
    processor = counters.get("user_ns", 0) + counters.get("system_ns", 0)
    return accesses / seconds, processor / max(accesses, 1), counters.get("process_read_bytes", 0) / PAGE / seconds


def beside_fio(args, work, data):
    # The command takes the fio that the PATH has first.
    bin = work / "bin"
    bin.mkdir()
    (bin / "fio").symlink_to(args.fio)
    path = f"{bin}:{os.environ.get('PATH', '')}"
    row("order", "block", "depth", "fio", "accesses, ours / fio", "processor time, ours / fio", "turns")
    row(*["---"] * 7)
    for rw, block, depth in [("randread", "4k", depth) for depth in (1, 8, 32, 64)] + [("read", "1m", 1), ("read", "1m", 8)]:
        for options in ("", "sqthread_poll=on"):
            words = ["--rw", rw, "--bs", block, "--iodepth", depth, "--cache", "cold", "--time-based", "-m", "uring", "--runs", args.runs, data]
            found, why = compared(args, work, [*words, "--peer", f"fio:{options}" if options else "fio"], path)
            turns = {}
            for record in found:
                turns.setdefault(record["trial"]["repetition"], {})["peer" in record["trial"]["arm"]] = figures(record)
            pairs = [(turn[False], turn[True]) for turn in turns.values() if len(turn) == 2]
            rates = told([ours[0] / fios[0] for ours, fios in pairs])
            processor = told([ours[1] / fios[1] for ours, fios in pairs if fios[1] > 0])
            row(rw, block, depth, options or "its best", rates if pairs else why, processor, len(pairs))


def vmcache_pages(args, work, threads, budget, length):
    """Pages that vmcache reads a second, once its lookups run."""
    block = work / "vmcache.data"
    with open(block, "wb") as out:
        out.truncate(2 * length)
    of = {
        "BLOCK": block, "VIRTGB": -(-2 * length // UNITS["g"]), "PHYSGB": budget // UNITS["g"], "THREADS": threads,
        "DATASIZE": length // TUPLE, "RUNFOR": args.seconds + 1, "RNDREAD": 1,
    }
    said = subprocess.run([args.vmcache], capture_output=True, text=True, env={**os.environ, **{name: str(value) for name, value in of.items()}})
    block.unlink()
    lines = [line.split(",") for line in said.stdout.splitlines() if line[:1].isdigit()]
    if said.returncode != 0 or len(lines) < 2:
        raise RuntimeError(f"vmcache: exit code {said.returncode}: {(said.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    # The first second ends what was begun before.
    return sum(float(line[2]) for line in lines[1:]) / (len(lines) - 1) * (1 << 20) / PAGE


def beside_vmcache(args, work, data, length):
    budget = size(args.budget)
    row("threads", "reads of a thread", "pages a second, ours", "vmcache", "ours / vmcache", "turns")
    row(*["---"] * 6)
    for threads in map(int, args.threads.split(",")):
        found = {1: [], 32: []}
        theirs = []
        why = ""
        for turn in range(args.runs):
            def ours():
                nonlocal why
                for depth in found:
                    words = ["--rw", "randread", "--bs", "4k", "--numjobs", threads, "--cache", "cold", "--time-based", "--no-peer", "--runs", 1]
                    records, reason = compared(args, work, [*words, "-m", f"pool:memory={args.budget},depth={depth}", data])
                    why = why or reason
                    found[depth].append(figures(records[0])[2] if records else None)

            def peer():
                theirs.append(vmcache_pages(args, work, threads, budget, length))

            for run in (ours, peer) if turn % 2 == 0 else (peer, ours):
                run()
        for depth, pages in found.items():
            pairs = [(one, other) for one, other in zip(pages, theirs) if one and other]
            if not pairs:
                row(threads, depth, why or "nothing was read", f"{median(theirs):.0f}", "–", 0)
                continue
            ratio = told([one / other for one, other in pairs])
            row(threads, depth, f"{median(one for one, _ in pairs):.0f}", f"{median(other for _, other in pairs):.0f}", ratio, len(pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--majorfault", default="target/release/majorfault")
    parser.add_argument("--fio", help="path of a built fio")
    parser.add_argument("--vmcache", help="path of a built vmcache")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--size", default="4g", help="bytes of the file")
    parser.add_argument("--budget", default="1g", help="memory of the pools; vmcache knows whole gigabytes")
    parser.add_argument("--threads", default="1,2,16,64")
    parser.add_argument("--dir", default="/var/tmp")
    args = parser.parse_args()
    for name in ("majorfault", "fio", "vmcache"):
        given = getattr(args, name)
        if given and not os.access(given, os.X_OK):
            parser.error(f"--{name} {given}: no program is there; build it first, this script builds nothing")
        if given:
            setattr(args, name, os.path.abspath(given))
    if not args.fio and not args.vmcache:
        parser.error("nothing to compare with: give --fio PATH, --vmcache PATH or both")
    if args.vmcache and size(args.budget) % UNITS["g"] != 0:
        parser.error(f"--budget {args.budget}: vmcache knows whole gigabytes only")
    length = size(args.size)
    # Ended so, it takes its file away as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp(prefix="beside-peers-", dir=args.dir))
    try:
        data = work / "data"
        with open(data, "wb") as out:
            for _ in range(length >> 20):
                out.write(os.urandom(1 << 20))
            os.fsync(out.fileno())
        if args.fio:
            beside_fio(args, work, data)
        if args.vmcache:
            print()
            beside_vmcache(args, work, data, length)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
