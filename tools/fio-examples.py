#!/usr/bin/env python3
"""fio's own examples through `majorfault compare`, and fio itself beside them.

    python3 tools/fio-examples.py DIR [--majorfault PROGRAM] [--size 16m] [--runtime 300ms] [--runs 1] [--markdown]

DIR holds job files (fio's sources: examples/). Each is run by every usual method with fio as a peer, on files that are made in a directory
of our own: `--size` and `--runtime` go over the file's, as do names of devices. Printed is a table: the example, what it needs, whether
it runs or the option and line that stop it, on how many methods, and the accesses of fio as the peer / of fio called by itself with
the same job file and the same overrides, the median of pairs run in turns, with the least and the greatest.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ORDINARY = {"", "sync", "psync", "vsync", "pvsync", "pvsync2", "io_uring", "libaio", "posixaio", "mmap", "splice"}
ZONED = re.compile(r"^\s*zonemode\s*=\s*zbd", re.M)


def lines_of(text):
    return [re.split("[;#]", line)[0].strip() for line in text.splitlines()]


def needs(text):
    """What an example needs that is no file: an engine, a device, zones; or nothing."""
    engines = {line.split("=", 1)[1].strip() for line in lines_of(text) if re.match(r"ioengine\s*=", line)}
    if special := sorted(engine for engine in engines if engine not in ORDINARY):
        return "engine " + ", ".join(special)
    if "xnvme" in text or "io_uring_cmd" in text or any(line.startswith(("fdp", "md_per_io")) for line in lines_of(text)):
        return "engine xnvme"
    if ZONED.search(text):
        return "a zoned device"
    if re.search(r"^\s*filename\s*=\s*/dev/(null|zero)", text, re.M):
        return "a device without places"
    if re.search(r"^\s*filename\s*=\s*/dev/", text, re.M):
        return "a device"
    return ""


def own(text, directory):
    """The same job file with files in `directory` in place of devices and directories."""
    text = re.sub(r"^(\s*filename\s*=\s*)/dev/\S+", r"\1device", text, flags=re.M)
    text = text.replace("=/tmp/", "=")
    text = re.sub(r"^\s*directory\s*=.*$", "", text, flags=re.M)
    # Jobs that begin seconds after each other would take minutes.
    text = re.sub(r"^(\s*start_?delay\s*=\s*)(\d+)\s*$", r"\g<1>\g<2>ms", text, flags=re.M)
    return text.replace("offset_increment=124g", "offset_increment=0")


def called(command, cwd, limit):
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None


def by_majorfault(args, job, work, *more):
    records = work / "records.jsonl"
    records.unlink(missing_ok=True)
    command = [args.majorfault, "compare", job, "--dir", work, "--size", args.size, "--runtime", args.runtime]
    command += ["--runs", "1", "-q", "--records", records, *more]
    said = called(list(map(str, command)), work, args.limit)
    if said is None:
        return "it took too long", []
    found = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
    if not found:
        return said.stderr.strip().removeprefix("majorfault: ").replace(str(job) + ": ", ""), []
    return "", found


def by_fio(args, job, work):
    """Accesses a second of fio itself, stages and jobs added up; none where it does not run.

    Its files are written before, as ours are: a block that was only reserved is read without the device.
    """
    # Its files stay: where they are, our runs would find them.
    work = work / "alone"
    (work / "scratch").mkdir(parents=True, exist_ok=True)
    text = re.sub(r"^\s*(size|filesize|io_size|runtime|timeout)\s*=.*$", "", Path(job).read_text(), flags=re.M)
    text = re.sub(r"^\[(?!global\])(.*)\]$", rf"[\1]\nsize={args.size}\nruntime={args.runtime}\nend_fsync=1\noverwrite=1\nfallocate=none", text, flags=re.M)
    (work / "own.fio").write_text(text)
    said = called(["fio", "--output-format=json", "--eta=never", "own.fio"], work, args.limit)
    if said is None or said.returncode != 0:
        return None
    jobs = json.loads(said.stdout[said.stdout.index("{\n"):])["jobs"]
    # Its own iops leave out what verify reads where jobs are told as a group: their time is 0 then.
    times = [max(job["read"]["runtime"], job["write"]["runtime"]) for job in jobs]
    counts = [job["read"]["total_ios"] + job["write"]["total_ios"] for job in jobs]
    return sum(count * 1000 / time for count, time in zip(counts, times) if time)


def as_peer(args, job, work):
    """The same of fio as a peer: each job's accesses over its own time, stages and jobs added up."""
    _, records = by_majorfault(args, job, work, "--method", "null")
    peers = [record for record in records if "peer" in record["trial"]["arm"] and record["outcome"] == "done"]
    stages = {record["trial"]["stage"] for record in peers}
    return sum(median(rate(one) for one in peers if one["trial"]["stage"] == stage) for stage in stages)


def ratio(args, job, work):
    """fio as a peer over fio alone: the median of pairs run in turns, and the least and the greatest."""
    ratios = []
    for _ in range(args.runs):
        peer, alone = as_peer(args, job, work), by_fio(args, job, work)
        if not peer or not alone:
            return "–"
        ratios.append(peer / alone)
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def rate(record):
    """The same of a record: the sum of each job's accesses over its own time."""
    return sum((job["read"]["accesses"] + job["write"]["accesses"]) * 1e9 / job["wall_ns"] for job in record["jobs"] if job["wall_ns"])


def row(args, path):
    text = path.read_text()
    work = Path(tempfile.mkdtemp(prefix="fio-examples-", dir=args.dir))
    try:
        job = work / path.name
        job.write_text(own(text, work))
        need = needs(text)
        why, records = by_majorfault(args, job, work)
        done = {json.dumps(record["trial"]["arm"]) for record in records if record["outcome"] == "done"}
        failed = [record for record in records if record["outcome"] != "done"]
        together = ratio(args, job, work) if records and args.runs else "–"
        if failed:
            outcome = failed[0]["outcome"]
            why = f"{len(failed)} of {len(records)} runs: {json.dumps(outcome)[:90]}"
        runs = "runs" if records else "refused"
        return [path.name, need, runs, str(len(done)) if records else "–", together, why.splitlines()[0][:150] if why else ""]
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--majorfault", default="majorfault")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--size", default="16m")
    parser.add_argument("--runtime", default="300ms")
    parser.add_argument("--runs", type=int, default=3, help="pairs of fio as a peer and fio alone; 0 for none")
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    args.majorfault = os.path.abspath(shutil.which(args.majorfault) or args.majorfault)
    titles = ["example", "needs", "outcome", "arms", "fio as peer / alone", "why not, or what failed"]
    print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles))
    rows = []
    for path in sorted(args.examples.glob("*.fio")):
        if args.only and path.name not in args.only:
            continue
        rows.append(row(args, path))
        print("| " + " | ".join(cell.replace("|", "/") for cell in rows[-1]) + " |", flush=True)
    plain = [row for row in rows if not row[1]]
    run = [row for row in plain if row[2] == "runs"]
    print(f"\n{len(run)} of {len(plain)} examples that need no engine and no device of their own run; ", end="")
    device = [row for row in rows if row[1] == "a device"]
    print(f"{sum(row[2] == 'runs' for row in device)} of {len(device)} that name a device run on a file.")
    return 0 if plain and len(run) * 5 >= len(plain) * 4 else 1


if __name__ == "__main__":
    sys.exit(main())
