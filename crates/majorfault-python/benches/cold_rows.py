"""Rows of a file in random order, cold: what waits for faults, what announces its rows, and the bound.

    python benches/cold_rows.py --size 2G --row 16K --rounds 7 [--memory quarter] [--read-ahead 128]

Arms take turns within each round (which one first changes by chance), each on rows of its own drawing, after the file was dropped from
the page cache. Bytes are the process's own (/proc/self/io). `--memory SIZE|quarter` runs all arms in a cgroup with this limit, and
`--read-ahead KiB` with another read-ahead of the device; both need root and are undone, also when this is killed. Medians stand with
intervals by order statistics that cover the median with 95 % where there are six rounds or more.
"""

import argparse
import json
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from math import comb
from pathlib import Path

import numpy as np

import majorfault


def sized(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1].upper()] if text[-1].upper() in units else int(text)


def read_bytes():
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def make(path, size):
    """A file whose bytes say where they are: the first number of each row is its place."""
    with open(path, "wb") as file:
        for begin in range(0, size, 64 << 20):
            length = min(64 << 20, size - begin)
            np.arange(begin // 4, (begin + length) // 4, dtype="u4").tofile(file)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), begin, length, os.POSIX_FADV_DONTNEED)


def drop(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Arms:
    """Ways to get batches of rows. Each opens the file by itself, as a program would."""

    def __init__(self, path, row, column):
        self.path, self.row, self.column = path, row, column
        self.shape = (os.path.getsize(path) // row, row // 4)

    def map(self):
        return np.memmap(self.path, "u4", "r", shape=self.shape)

    def plain(self, batches):
        array = self.map()
        yield from (array[batch] for batch in batches)

    def random(self, batches):
        array = self.map()
        majorfault.advise(array, "random")
        yield from (array[batch] for batch in batches)

    def sorted(self, batches):
        array = self.map()
        for batch in batches:
            order = np.argsort(batch)
            found = np.empty((len(batch), self.shape[1]), "u4")
            found[order] = array[batch[order]]
            yield found

    def prefetch(self, batches):
        array = self.map()
        yield from (array[batch] for batch in majorfault.Ahead(batches, array, 2))

    def memmap(self, batches):
        array = majorfault.memmap(self.path, "u4", "r", shape=self.shape)
        yield from (array[batch] for batch in batches)

    def loaded(self, batches):
        majorfault.load(self.path)
        yield from self.plain(batches)

    def take(self, batches):
        yield from (majorfault.take(self.path, batch, dtype="u4", row_shape=self.shape[1:]) for batch in batches)


ARMS = {
    "plain": "np.memmap, as it is",
    "random": "np.memmap with MADV_RANDOM",
    "sorted": "np.memmap, each batch in the file's order",
    "memmap": "majorfault.memmap: each index announces its rows",
    "prefetch": "majorfault.Ahead: two batches ahead",
    "loaded": "majorfault.load first, then plain",
    "take": "bound: majorfault.take, io_uring past the page cache, depth 64",
}


def measure(arms, name, batches, is_cold):
    """Seconds, bytes read, major faults; the answer is checked."""
    if is_cold:
        drop(arms.path)
    else:
        for _ in arms.plain(batches):
            pass
    before = read_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    began = time.perf_counter()
    first = [found[:, 0] for found in getattr(arms, name)(batches)]
    seconds = time.perf_counter() - began
    after = read_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    expected = np.concatenate(batches) * (arms.row // 4)
    assert (np.concatenate(first) == expected.astype("u4")).all(), f"{name} gave other rows"
    return {"seconds": seconds, "bytes": after[0] - before[0], "faults": after[1] - before[1]}


def interval(values, coverage=0.95):
    """Median, and the values between which it lies with this probability: order statistics, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    outside = 0.0
    for cut in range(count // 2 + 1):
        outside += 2 * comb(count, cut) / 2**count
        if 1 - outside < coverage:
            return statistics.median(ordered), *((ordered[cut - 1], ordered[count - cut]) if cut else (None, None))
    return statistics.median(ordered), None, None


def device(path):
    """The settings of the disk below the file."""
    major, minor = os.major(os.stat(path).st_dev), os.minor(os.stat(path).st_dev)
    queue = Path(f"/sys/dev/block/{major}:{minor}")
    return next((place for place in (queue / "queue", queue / "../queue") if place.exists()), None)


class ReadAhead:
    """Another read-ahead of the device, for a while. A child puts it back when this process ends, however it ends."""

    def __init__(self, path, kib):
        self.file, self.kib = device(path) / "read_ahead_kb", kib

    def __enter__(self):
        before = self.file.read_text().strip()
        ready, ours = os.pipe()
        if os.fork() == 0:
            os.setsid()
            os.close(ours)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.read(ready, 1)  # Ends when our end is closed: by us, or by our death.
            self.file.write_text(before)
            os._exit(0)
        os.close(ready)
        os.set_inheritable(ours, False)
        self.ours = ours
        self.file.write_text(str(self.kib))

    def __exit__(self, *_):
        os.close(self.ours)
        os.wait()


def in_group(limit):
    """The same command in a cgroup with this limit; returns its exit code, or None where none can be made."""
    roots = [(Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")]
    for root, name in roots:
        group = root / f"majorfault-bench-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        try:
            arguments = [sys.executable, *sys.argv, "--inside", str(limit)]
            return subprocess.call(arguments, preexec_fn=lambda group=group: (group / "cgroup.procs").write_text(str(os.getpid())))
        finally:
            for _ in range(100):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)
    return None


def session(options, path):
    arms = Arms(path, options.row, 77)
    names = options.arms.split(",")
    results = {name: [] for name in names}
    for round_ in range(options.rounds):
        for name in random.sample(names, len(names)):
            rng = np.random.default_rng((round_, sorted(ARMS).index(name)))
            batches = list(rng.permutation(arms.shape[0])[: options.batches * options.batch].reshape(-1, options.batch))
            results[name].append(measure(arms, name, batches, not options.warm))
    return results


def table(options, path, results):
    wanted = options.batches * options.batch * options.row
    queue = device(path)
    ahead = (queue / "read_ahead_kb").read_text().strip() if queue else "unknown"
    memory = f"{options.inside >> 20} MiB" if options.inside else "none"
    print(
        f"\n{options.batches} batches of {options.batch} rows of {options.row >> 10} KiB from {os.path.getsize(path) >> 20} MiB, "
        f"{'warm' if options.warm else 'cold'}; memory limit {memory}; read_ahead_kb {ahead}; {options.rounds} interleaved rounds\n"
        f"Linux {platform.release()}, {os.cpu_count()} processors, numpy {np.__version__}, Python {platform.python_version()}; load "
        f"{os.getloadavg()[0]:.1f}; wanted {wanted >> 20} MiB\n"
    )
    print(f"{'arm':9} {'median s':>9} {'95 % interval':>19} {'as slow as prefetch':>20} {'MiB read':>9} {'faults':>7}")
    reference = [result["seconds"] for result in results.get("prefetch", next(iter(results.values())))]
    for name, runs in results.items():
        median, low, high = interval([run["seconds"] for run in runs])
        ratio, least, most = interval([run["seconds"] / other for run, other in zip(runs, reference, strict=True)])
        spread = f"{low:.3f} to {high:.3f}" if low is not None else "too few rounds"
        ratios = f"{ratio:.2f}" + (f" [{least:.2f}, {most:.2f}]" if least is not None else "")
        mib = statistics.median(run["bytes"] for run in runs) / (1 << 20)
        print(f"{name:9} {median:9.3f} {spread:>19} {ratios:>20} {mib:9.1f} {statistics.median(run['faults'] for run in runs):7.0f}")
    print("\n" + "\n".join(f"{name}: {ARMS[name]}" for name in results))


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=sized, default="1G")
    parser.add_argument("--row", type=sized, default="16K")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--arms", default=",".join(name for name in ARMS if name != "loaded"))
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--memory", help="limit for all arms: a size, or quarter (of the file)")
    parser.add_argument("--read-ahead", type=int, help="KiB that the device reads ahead, instead of what it has")
    parser.add_argument("--warm", action="store_true", help="the rows are cached before")
    parser.add_argument("--json", help="append the samples to this file")
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--inside", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main():
    options = options_of(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="majorfault-bench-", dir=options.dir) as folder:
        path = options.file or os.path.join(folder, "rows")
        if not options.file:
            make(path, options.size)
        if options.memory and not options.inside:
            limit = options.size // 4 if options.memory == "quarter" else sized(options.memory)
            sys.argv += ["--file", path]
            code = in_group(limit)
            if code is None:
                sys.exit("no cgroup with a memory limit can be made here: run as root")
            sys.exit(code)
        if options.read_ahead:
            with ReadAhead(path, options.read_ahead):
                results = session(options, path)
                table(options, path, results)
        else:
            results = session(options, path)
            table(options, path, results)
        if options.json:
            with open(options.json, "a") as file:
                file.write(json.dumps({"options": vars(options), "kernel": platform.release(), "results": results}) + "\n")


if __name__ == "__main__":
    main()
