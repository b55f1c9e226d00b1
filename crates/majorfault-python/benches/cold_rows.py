"""Rows of a file in random order, cold: what waits for faults, what announces its rows, and the bound.

    python benches/cold_rows.py --size 2G --row 16K --rounds 7 [--memory quarter] [--read-ahead 128]

Arms take turns within each round (which one first changes by chance), each on rows of its own drawing, after the file was dropped from
the page cache. Bytes are the process's own (/proc/self/io). `--memory SIZE|quarter` runs all arms in a cgroup with this limit, and
`--read-ahead KiB` with another read-ahead of the device; both need root and are undone, also when this is killed. Medians stand with
intervals by order statistics that cover the median with 95 % where there are six rounds or more.
"""

import argparse
import os
import sys
from contextlib import nullcontext

import numpy as np
from cold import NO_GROUP, Cost, Folder, ReadAhead, append_json, conditions, drop, in_group, interleaved, make, print_table, sized

import majorfault


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
    with Cost() as cost:
        first = [found[:, 0] for found in getattr(arms, name)(batches)]
    expected = np.concatenate(batches) * (arms.row // 4)
    assert (np.concatenate(first) == expected.astype("u4")).all(), f"{name} gave other rows"
    return cost.record()


def session(options, path):
    arms = Arms(path, options.row, 77)

    def one(round_, name):
        rng = np.random.default_rng((round_, sorted(ARMS).index(name)))
        batches = list(rng.permutation(arms.shape[0])[: options.batches * options.batch].reshape(-1, options.batch))
        return measure(arms, name, batches, not options.warm)

    return interleaved(options.arms.split(","), options.rounds, one)


def table(options, path, results):
    wanted = options.batches * options.batch * options.row
    print(
        f"\n{options.batches} batches of {options.batch} rows of {options.row >> 10} KiB from {os.path.getsize(path) >> 20} MiB, "
        f"{'warm' if options.warm else 'cold'}; {conditions(path, options.inside, options.rounds)}; wanted {wanted >> 20} MiB\n"
    )
    print_table(results, "prefetch" if "prefetch" in results else next(iter(results)), ARMS)


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


def limited(options, path):
    """All of it again in a cgroup; ends this process."""
    limit = options.size // 4 if options.memory == "quarter" else sized(options.memory)
    sys.argv += ["--file", path]
    code = in_group(limit)
    if code is None:
        raise SystemExit(NO_GROUP)
    raise SystemExit(code)


def measured(options, path):
    results = session(options, path)
    table(options, path, results)
    if options.json:
        append_json(options.json, options, results=results)


def main():
    options = options_of(sys.argv[1:])
    if options.inside:
        measured(options, options.file)
        return
    with Folder(options.dir) as folder, ReadAhead(folder.path, options.read_ahead) if options.read_ahead else nullcontext():
        path = os.path.join(folder.path, "rows")
        make(path, options.size)
        if options.memory:
            limited(options, path)
        measured(options, path)


if __name__ == "__main__":
    main()
