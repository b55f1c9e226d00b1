"""Files on a disk, and the kernel's own counters of what was read from it."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

PAGE = os.sysconf("SC_PAGE_SIZE")


def read_bytes():
    """Bytes that this process had the kernel fetch from devices."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def major_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def drop(path):
    """Takes the file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


class Cost:
    """What a block of code had read and how often it waited for a page.

    The counters are the process's: a page of Python's own code that was evicted meanwhile counts, too. So a few faults and some bytes
    are nobody's fault; how much of the file itself was read is exact, by what is cached of it.
    """

    STRAY_FAULTS = 4
    STRAY_BYTES = 256 << 10

    def waited(self):
        return self.faults > self.STRAY_FAULTS

    def read(self, wanted):
        return wanted <= self.bytes <= wanted + self.STRAY_BYTES

    def __enter__(self):
        self._bytes, self._faults = read_bytes(), major_faults()
        return self

    def __exit__(self, *_):
        self.bytes, self.faults = read_bytes() - self._bytes, major_faults() - self._faults


@pytest.fixture(scope="session")
def disk():
    """A folder on a file system that reads from a device."""
    with tempfile.TemporaryDirectory(prefix="majorfault-python-", dir="/var/tmp") as folder:
        probe = Path(folder, "probe")
        probe.write_bytes(bytes(64 * PAGE))
        drop(probe)
        with Cost() as cost:
            probe.read_bytes()
        yield Path(folder), cost.bytes > 0


@pytest.fixture
def folder(disk, tmp_path_factory, request):
    folder = disk[0] / request.node.name.replace("[", "-").replace("]", "").replace("/", "-")[:80]
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def counted(disk):
    """For tests that count device bytes."""
    if not disk[1]:
        pytest.skip("/var/tmp reads from no device whose bytes are counted")


@pytest.fixture
def rows(folder):
    """1024 rows of 16 KiB, each full of its number, not cached; path, shape."""
    path = folder / "rows"
    np.repeat(np.arange(1024, dtype="u4"), 4096).tofile(path)
    drop(path)
    return path, (1024, 4096)


def run(program, *arguments):
    """Runs a program of Python's in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
