"""What benches of cold files share: files, page cache, limits that are undone, rounds in which arms take turns, intervals, tables.

A folder, limit or read-ahead that is made here is undone by a child of this process when it ends, also when it is killed.
"""

import contextlib
import ctypes
import json
import os
import platform
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from math import comb
from pathlib import Path

import numpy as np


def sized(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1].upper()] if text[-1].upper() in units else int(text)


def read_bytes():
    """Bytes that this process, and children that it waited for, had the device read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def major_faults():
    """Of this process, and of children that it waited for."""
    return sum(resource.getrusage(who).ru_majflt for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def make(path, size):
    """A file whose bytes say where they are: each number of four bytes is its place."""
    with open(path, "wb") as file:
        for begin in range(0, size, 64 << 20):
            length = min(64 << 20, size - begin)
            np.arange(begin // 4, (begin + length) // 4, dtype="u4").tofile(file)
            written(file, begin, length)


def written(file, begin=0, length=0):
    """To the device, and out of the page cache."""
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), begin, length, os.POSIX_FADV_DONTNEED)


def drop(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def device(path):
    """The settings of the disk below the file."""
    major, minor = os.major(os.stat(path).st_dev), os.minor(os.stat(path).st_dev)
    queue = Path(f"/sys/dev/block/{major}:{minor}")
    return next((place for place in (queue / "queue", queue / "../queue") if place.exists()), None)


def read_ahead_kb(path):
    queue = device(path)
    return (queue / "read_ahead_kb").read_text().strip() if queue else "unknown"


# What is set for a while


class Undone:
    """Something that a child undoes when this process ends, however it ends."""

    ours = set()
    """Ends of pipes whose closing is the sign; a forked child closes its copies."""

    def undo(self):
        raise NotImplementedError

    def __enter__(self):
        ready, self.end = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.setsid()
            os.close(self.end)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.read(ready, 1)  # Ends when the other end is closed: by us, or by our death.
            self.undo()
            os._exit(0)
        os.close(ready)
        Undone.ours.add(self.end)
        return self

    def __exit__(self, *_):
        Undone.ours.discard(self.end)
        os.close(self.end)
        os.waitpid(self.child, 0)


class Folder(Undone):
    """A folder for files, for a while."""

    def __init__(self, parent):
        self.path = tempfile.mkdtemp(prefix="majorfault-bench-", dir=parent)

    def undo(self):
        shutil.rmtree(self.path, ignore_errors=True)


class ReadAhead(Undone):
    """Another read-ahead of the device, for a while. Not for a process in a `Limit`: who is killed with it undoes nothing."""

    def __init__(self, path, kib):
        self.file, self.kib = device(path) / "read_ahead_kb", kib
        self.before = self.file.read_text().strip()

    def undo(self):
        self.file.write_text(self.before)

    def __enter__(self):
        super().__enter__()
        self.file.write_text(str(self.kib))
        return self


class Limit(Undone):
    """A cgroup with a limit of memory. Raises OSError where none can be made."""

    def __init__(self, size):
        roots = [(Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")]
        for root, name in roots:
            self.group = root / f"majorfault-bench-{os.getpid()}"
            try:
                self.group.mkdir()
                (self.group / name).write_text(str(size))
                return
            except OSError as failure:
                last = failure
                if self.group.exists():
                    self.group.rmdir()
        raise last

    def join(self):
        """Moves the calling process: what it allocates and caches from now on counts."""
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def undo(self):
        for _ in range(200):
            with contextlib.suppress(OSError):
                # What still runs in it was started here.
                for pid in (self.group / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                self.group.rmdir()
                return
            time.sleep(0.05)


NO_GROUP = "no cgroup with a memory limit can be made here: run as root"


def in_group(limit):
    """The same command in a cgroup with this limit; returns its exit code, or None where none can be made."""
    try:
        group = Limit(limit)
    except OSError:
        return None
    with group:
        return subprocess.call([sys.executable, *sys.argv, "--inside", str(limit)], preexec_fn=group.join)


def forked(call, *given):
    """What `call` gives in a child of its own, as JSON has it; {"failed": TEXT} where it raised or the child was killed."""
    ready, ours = os.pipe()
    child = os.fork()
    if child == 0:
        # The child ends with us.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        for end in (ready, *Undone.ours):
            os.close(end)
        try:
            result = call(*given)
        except BaseException as failure:
            result = {"failed": f"{type(failure).__name__}: {failure}"}
            traceback.print_exc()
        with os.fdopen(ours, "w") as pipe:
            json.dump(result, pipe)
        sys.stdout.flush()
        os._exit(0)
    os.close(ours)
    with os.fdopen(ready) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(text) if status == 0 and text else {"failed": f"killed by signal {-status}" if status < 0 else f"exit code {status}"}


# Rounds, intervals, tables


def interleaved(names, rounds, measure):
    """Arms take turns within each round, which one first changes by chance. `measure` is given round and name."""
    results = {name: [] for name in names}
    for round_ in range(rounds):
        for name in random.sample(names, len(names)):
            results[name].append(measure(round_, name))
    return results


class Cost:
    """Seconds, bytes of the device, major faults, of this process and of children that it waited for."""

    def __enter__(self):
        self.bytes, self.faults = read_bytes(), major_faults()
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.began
        self.bytes, self.faults = read_bytes() - self.bytes, major_faults() - self.faults

    def record(self):
        return {"seconds": self.seconds, "bytes": self.bytes, "faults": self.faults}


def interval(values, coverage=0.95):
    """Median, and the values between which it lies with this probability: order statistics, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    outside = 0.0
    for cut in range(count // 2 + 1):
        outside += 2 * comb(count, cut) / 2**count
        if 1 - outside < coverage:
            return statistics.median(ordered), *((ordered[cut - 1], ordered[count - cut]) if cut else (None, None))
    return statistics.median(ordered), None, None


def conditions(path, memory, rounds):
    """Of all arms, in two lines."""
    limit = f"{memory >> 20} MiB" if memory else "none"
    return (
        f"memory limit {limit}; read_ahead_kb {read_ahead_kb(path)}; {rounds} interleaved rounds\n"
        f"Linux {platform.release()}, {os.cpu_count()} processors, numpy {np.__version__}, Python {platform.python_version()}; load "
        f"{os.getloadavg()[0]:.1f}"
    )


def print_table(results, reference, told):
    """Medians with intervals, and how many times as long as the reference, paired by round. Rounds in which an arm failed are left out."""
    width = max(9, *(len(name) for name in results))
    print(f"{'arm':{width}} {'median s':>9} {'95 % interval':>19} {'as slow as ' + reference:>24} {'MiB read':>9} {'faults':>7}")
    for name, runs in results.items():
        done = [run for run in runs if "failed" not in run]
        if not done:
            print(f"{name:{width}} failed in all rounds: {runs[0]['failed']}")
            continue
        median, low, high = interval([run["seconds"] for run in done])
        spread = f"{low:.3f} to {high:.3f}" if low is not None else "too few rounds"
        ratios = shown_ratio(runs, results[reference])
        mib = statistics.median(run["bytes"] for run in done) / (1 << 20)
        failed = f"   {len(runs) - len(done)} rounds failed: {next(run['failed'] for run in runs if 'failed' in run)}" if len(done) < len(runs) else ""
        print(f"{name:{width}} {median:9.3f} {spread:>19} {ratios:>24} {mib:9.1f} {statistics.median(run['faults'] for run in done):7.0f}{failed}")
    print("\n" + "\n".join(f"{name}: {told[name]}" for name in results))


def shown_ratio(runs, others):
    pairs = [run["seconds"] / other["seconds"] for run, other in zip(runs, others, strict=True) if "failed" not in run and "failed" not in other]
    if not pairs:
        return "none"
    ratio, least, most = interval(pairs)
    return f"{ratio:.2f}" + (f" [{least:.2f}, {most:.2f}]" if least is not None else "")


def append_json(path, options, **what):
    with open(path, "a") as file:
        file.write(json.dumps({"options": vars(options), "kernel": platform.release(), **what}) + "\n")
