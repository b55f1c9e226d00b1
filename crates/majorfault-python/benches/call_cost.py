#!/usr/bin/env python3
"""What a call of `prefetch` costs where nothing has to be read: call_cost.py [--rounds 15] [--calls 500].

Rows of 16 KiB of the first 64 MiB of a file of 80 MiB that is cached: as a whole (the usual case beside memory that suffices), and with pages missing at its end, so
that each row is looked at. Calls with 1 to 256 rows take turns; a line through their medians gives what a call costs and what a row adds. Beside
them stands what the same call costs without anything behind it, in this interpreter: `nothing(array, rows)`.
"""

import argparse
import gc
import os
import platform
import statistics
import tempfile
import time

import numpy as np

import majorfault

ROWS = (1, 4, 16, 64, 256)
ROW_BYTES = 16 << 10
ROWS_ASKED = 4096
"""Rows that calls ask for: 64 MiB."""
ROWS_SPARE = 1024
"""Behind them, 16 MiB that leave the page cache: a large folio leaves as a whole, or not at all."""
GOAL = "goal: 5 us a call and 50 ns a row"


def nothing(array, rows=None):
    return len(rows)


def timed(call, array, rows, calls):
    began = time.perf_counter_ns()
    for _ in range(calls):
        call(array, rows)
    return (time.perf_counter_ns() - began) / calls


def line(medians):
    """Least squares, each point weighed by its share: what a call costs, and what a row adds."""
    weights = [1 / value**2 for value in medians.values()]
    x, y, all_ = list(medians), list(medians.values()), sum(weights)
    mean_x, mean_y = (sum(w * v for w, v in zip(weights, values, strict=True)) / all_ for values in (x, y))
    slope = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weights, x, y, strict=True)) / sum(w * (a - mean_x) ** 2 for w, a in zip(weights, x, strict=True))
    return mean_y - slope * mean_x, slope


def measured(array, rounds, calls):
    dice = np.random.default_rng(7)
    rows = {count: dice.permutation(len(array))[:count].astype("i8") for count in ROWS}
    found = {(name, count): [] for name in ("prefetch", "nothing") for count in ROWS}
    for _ in range(rounds):
        for count in ROWS:
            found["prefetch", count].append(timed(majorfault.prefetch, array, rows[count], calls))
            found["nothing", count].append(timed(nothing, array, rows[count], calls))
    return {key: (statistics.median(values), min(values), max(values)) for key, values in found.items()}


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--calls", type=int, default=500)
    asked.add_argument("--dir", default="/var/tmp")
    options = asked.parse_args()
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}; {GOAL}")
    with tempfile.NamedTemporaryFile(dir=options.dir) as file:
        file.write(os.urandom((ROWS_ASKED + ROWS_SPARE) * ROW_BYTES))
        file.flush()
        os.fsync(file.fileno())
        array = np.memmap(file.name, "u1", "r", shape=(ROWS_ASKED + ROWS_SPARE, ROW_BYTES))
        rows_alone = array[:ROWS_ASKED]
        gc.disable()
        for state in ("all of the file is cached", "the file's end is not cached"):
            if state == "the file's end is not cached":
                # Let go of first: the page cache keeps what is mapped.
                majorfault.release(array[ROWS_ASKED:], drop=True)
                assert majorfault.residency(array).resident_bytes < array.nbytes, "the kernel kept all of the file"
                assert majorfault.residency(rows_alone).share == 1, "rows that are asked for are gone, too"
            else:
                int(array[:, ::4096].sum())
            found = measured(rows_alone, options.rounds, options.calls)
            print(f"\n{state}; microseconds a call, median [least, most] of {options.rounds} x {options.calls} calls")
            for count in ROWS:
                shown = [f"{name} {found[name, count][0] / 1e3:6.2f} [{found[name, count][1] / 1e3:.2f}, {found[name, count][2] / 1e3:.2f}]" for name in ("prefetch", "nothing")]
                print(f"{count:4} rows: {'   '.join(shown)}")
            base, each = line({count: found["prefetch", count][0] for count in ROWS})
            print(f"{base / 1e3:.2f} us a call and {each:.0f} ns a row")


if __name__ == "__main__":
    main()
