"""Looks up random keys in an LMDB map of 200 MB: `cold`, `cold_nordahead` (MDB_NORDAHEAD), or `warm`."""
import os
import random
import sys
import time

import lmdb

ROWS = 200_000
MODE = sys.argv[1]


def environment():
    return lmdb.open("base", map_size=1 << 30, readonly=True, readahead=MODE != "cold_nordahead")


with lmdb.open("base", map_size=1 << 30) as base:
    with base.begin(write=True) as change:
        for row in range(ROWS):
            change.put(b"%08d" % row, os.urandom(1000), append=True)
    base.sync(True)
file = os.open("base/data.mdb", os.O_RDONLY)
base = environment()
if MODE == "warm":
    with base.begin() as view:
        view.stat()
        sum(len(value) for _, value in view.cursor())
open("ready", "w").close()
random.seed(1)
while True:
    if MODE != "warm":
        base.close()
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        base = environment()
    with base.begin() as view:
        for _ in range(24):
            view.get(b"%08d" % random.randrange(ROWS))
    if MODE == "warm":
        time.sleep(0.001)
