"""Programs with nothing to be told: `idle`, `read`, `scan`, `objects`."""
import mmap
import os
import sys
import time

MODE = sys.argv[1]
MIB = 1 << 20

with open("data", "wb") as data:
    for _ in range(128):
        data.write(os.urandom(MIB))
    os.fsync(data.fileno())
file = os.open("data", os.O_RDONLY)
open("ready", "w").close()
while True:
    if MODE == "idle":
        time.sleep(0.05)
    elif MODE == "read":
        # A cold file read once from its start to its end, again and again.
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(file, 0, os.SEEK_SET)
        while os.read(file, MIB):
            pass
    elif MODE == "scan":
        # The same by a mapping, at a pace at which the read-ahead keeps before it.
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapped:
            for at in range(0, len(mapped), 128 << 10):
                mapped[at : at + (128 << 10)]
                time.sleep(0.004)
    elif MODE == "objects":
        # Works with them, too: a program that only makes them spends up to half of its time in the kernel, which is not nothing.
        sorted({number: str(number) for number in range(300_000)}.values())
