"""Sums parts of a matrix of 200 rows of 1 MiB, mapped by numpy: `cold_columns`, or `warm_rows`."""
import os
import sys

import numpy

ROWS, COLUMNS = 200, 1 << 17
MODE = sys.argv[1]


def matrix():
    return numpy.memmap("matrix.bin", dtype="float64", mode="r", shape=(ROWS, COLUMNS))


numpy.arange(ROWS * COLUMNS, dtype="float64").tofile("matrix.bin")
file = os.open("matrix.bin", os.O_RDONLY)
os.fsync(file)
mapped = matrix()
open("ready", "w").close()
while True:
    if MODE == "warm_rows":
        for row in range(ROWS):
            mapped[row].sum()
        continue
    for column in range(0, COLUMNS, COLUMNS // 8):
        # The cache keeps what is mapped: the mapping goes first.
        del mapped
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        mapped = matrix()
        mapped[:, column].sum()
