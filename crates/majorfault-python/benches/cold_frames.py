#!/usr/bin/env python3
"""Arrays of other libraries, cold: as they are, announced by majorfault, and the bound.

    python benches/cold_frames.py --size 1G --rounds 6 [--memory quarter] [--read-ahead 128] [--only column,arrow]

Frames: column, datasets, loader, arrow, h5ad, h5ad_sparse, safetensors. Arms of a frame take turns within each round (which one first
changes by chance), each on rows of its own drawing and in a process of its own: the file is opened, used once, dropped from the page cache, and
then the time begins. Bytes and faults are those of this process and its workers. The same answer is checked in each arm.

`--memory SIZE|quarter` (of the file) limits what an arm takes after opening, the page cache with it: a cgroup that the process enters then.
`--read-ahead KiB` is another read-ahead of the device. Both need root and are undone, also when this is killed. `safetensors` has a
file of its own size (`--weights`) and always a limit of 1.2 times of it. Medians stand with intervals by order statistics that cover the
median with 95 % where there are six rounds or more.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext

import numpy as np
from cold import NO_GROUP, Cost, Folder, Limit, ReadAhead, append_json, conditions, drop, forked, interleaved, make, print_table, sized, written

import majorfault

ROW = 16 << 10
NUMBERS = ROW // 4
"""Of four bytes in a row."""
PLAIN = "as it is"
RANDOM = "with MADV_RANDOM"
BOUND = "bound: io_uring past the page cache, depth 64, the same bytes"


class Frame:
    """One library: makes its file, opens it, gets batches of rows. Each arm is a method that gives the first number of each row of a batch."""

    needs = ()
    """Modules, and how to get them."""
    arms = {}
    reference = ""
    """The arm that others are told beside."""
    row_bytes = ROW
    file = "rows"

    def __init__(self, path, batches):
        self.path, self.wanted_rows = path, batches

    @staticmethod
    def rows(size):
        return size // ROW

    @staticmethod
    def make(path, size):
        raise NotImplementedError

    def open(self, arm):
        """Before the time begins."""

    def warm_up(self):
        """Caches what is wanted."""
        for _ in getattr(self, self.reference)():
            pass

    def mapped(self):
        """What is let go of before the time begins; None where nothing is mapped."""
        return None

    def use_once(self, arm):
        """Libraries import and allocate at first use."""
        wanted, self.wanted_rows = self.wanted_rows, [np.array([0, 1])]
        for _ in getattr(self, arm)():
            pass
        self.wanted_rows = wanted

    def expected(self):
        return [(batch * NUMBERS).astype("u4") for batch in self.wanted_rows]

    def wanted(self):
        """Bytes that all arms must read."""
        return sum(map(len, self.wanted_rows)) * self.row_bytes

    def taken(self, begins, length):
        """Bytes of the file from these places on, by io_uring."""
        from majorfault._take import _taker

        out = np.empty((len(begins), length), "u1")
        _taker(self.path, "auto", 64).take_at(np.asarray(begins, "i8"), length, out)
        return out


class Column(Frame):
    arms = {
        "plain": f"np.memmap, {PLAIN}",
        "random": f"np.memmap {RANDOM}",
        "memmap": "majorfault.memmap",
        "warm": "majorfault.memmap of pages that are cached: what announcing and copying take by themselves",
        "take": f"{BOUND} (the pages that hold the column, 1024 at a time)",
    }
    reference = "memmap"
    row_bytes = 64 << 10
    make = staticmethod(make)
    what = "a[:, 77] of rows of 64 KiB"

    @staticmethod
    def rows(size):
        return 0

    def open(self, arm):
        shape = (os.path.getsize(self.path) // self.row_bytes, self.row_bytes // 4)
        kind = majorfault.memmap if arm in ("memmap", "warm") else np.memmap
        self.array = kind(self.path, "u4", "r", shape=shape)
        if arm == "random":
            majorfault.advise(self.array, "random")

    def mapped(self):
        return self.array.view(np.ndarray)

    def use_once(self, arm):
        np.ascontiguousarray(self.array[:3, 77])
        majorfault.take(self.path, [0], dtype="u4", row_shape=(1024,))

    def plain(self):
        # An index gives a view; copying it reads.
        yield np.ascontiguousarray(self.array[:, 77])

    random = memmap = warm = plain

    def take(self):
        pages = np.arange(len(self.array)) * (self.row_bytes >> 12)
        out = np.empty((1024, 1024), "u4")
        for begin in range(0, len(pages), len(out)):
            part = pages[begin : begin + len(out)]
            yield majorfault.take(self.path, part, out[: len(part)], dtype="u4", row_shape=(1024,))[:, 77].copy()

    def expected(self):
        return [np.arange(len(self.array), dtype="u4") * (self.row_bytes // 4) + 77]

    def wanted(self):
        return os.path.getsize(self.path) // self.row_bytes * 4096


class Datasets(Frame):
    needs = (("datasets", "pip install datasets"),)
    arms = {
        "plain": f"dataset[rows], {PLAIN}",
        "random": f"the same {RANDOM}",
        "batches": "majorfault.datasets.batches, four batches ahead",
        "warm": "dataset[rows] of rows that are cached: what the library takes by itself",
        "take": f"{BOUND}, as Python's bytes",
    }
    reference = "batches"
    what = "shuffled rows of a Hugging Face dataset: 16 KiB of binary and a number; record batches of 1000 rows"

    @staticmethod
    def make(path, size):
        import pyarrow as pa

        schema = pa.schema({"image": pa.binary(), "label": pa.int64()})
        with open(path, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for begin in range(0, size // ROW, 1000):
                rows = np.arange(begin, min(begin + 1000, size // ROW))
                images = np.arange(rows[0] * NUMBERS, (rows[-1] + 1) * NUMBERS, dtype="u4")
                offsets = np.arange(len(rows) + 1, dtype="i4") * ROW
                image = pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(images)])
                writer.write_batch(pa.record_batch([image, pa.array(rows)], schema=schema))
                written(file)

    def open(self, arm):
        import datasets

        self.dataset = datasets.Dataset.from_file(self.path)
        chunks = self.dataset.data.table.column("image").chunks
        self.firsts = np.cumsum([0] + [len(chunk) for chunk in chunks])
        self.places = np.array([majorfault.file_of(chunk.buffers()[2])[1] for chunk in chunks])
        if arm == "random":
            majorfault.advise(self.dataset, "random")

    def mapped(self):
        return self.dataset

    @staticmethod
    def first(found):
        return np.array([int.from_bytes(image[:4], sys.byteorder) for image in found["image"]], "u4")

    def plain(self):
        for batch in self.wanted_rows:
            yield self.first(self.dataset[batch.tolist()])

    random = warm = plain

    def batches(self):
        import majorfault.datasets

        for found in majorfault.datasets.batches(self.dataset, [batch.tolist() for batch in self.wanted_rows]):
            yield self.first(found)

    def take(self):
        for batch in self.wanted_rows:
            chunk = np.searchsorted(self.firsts, batch, side="right") - 1
            found = self.taken(self.places[chunk] + (batch - self.firsts[chunk]) * ROW, ROW)
            yield self.first({"image": [row.tobytes() for row in found]})


class Loader(Frame):
    needs = (("torch", "apt-get install python3-torch, and a venv of /usr/bin/python3 with --system-site-packages"),)
    arms = {
        "plain": f"DataLoader without workers over a tensor of torch.from_file, {PLAIN}",
        "random": f"the same {RANDOM}",
        "ahead": "AheadSampler, four batches ahead, without workers",
        "warm": "rows that are cached, without workers: what the library takes by itself",
        "plain_4": f"four workers, {PLAIN}; their start is timed",
        "random_4": f"four workers {RANDOM}",
        "ahead_4": "AheadSampler, twelve batches ahead, four workers",
        "warm_4": "rows that are cached, four workers",
        "take": f"{BOUND}, no loader",
    }
    reference = "ahead"
    make = staticmethod(make)
    what = "shuffled rows of 16 KiB of a tensor by torch.utils.data.DataLoader"

    def open(self, arm):
        import torch

        self.tensor = torch.from_file(self.path, shared=True, size=os.path.getsize(self.path) // 4, dtype=torch.int32).view(-1, NUMBERS)
        if arm.startswith("random"):
            majorfault.advise(self.tensor, "random")

    def mapped(self):
        return self.tensor

    def loaded(self, workers, ahead):
        import torch
        from majorfault.torch import AheadSampler

        batches = [batch.tolist() for batch in self.wanted_rows]
        sampler = AheadSampler(batches, self.tensor, ahead) if ahead else batches
        for found in torch.utils.data.DataLoader(self.tensor, batch_sampler=sampler, num_workers=workers):
            yield np.array(found[:, 0].tolist(), "i8").astype("u4")

    def plain(self):
        return self.loaded(0, 0)

    random = warm = plain

    def ahead(self):
        return self.loaded(0, 4)

    def plain_4(self):
        return self.loaded(4, 0)

    random_4 = warm_4 = plain_4

    def ahead_4(self):
        return self.loaded(4, 12)

    def take(self):
        for batch in self.wanted_rows:
            yield majorfault.take(self.path, batch, dtype="u4", row_shape=(NUMBERS,))[:, 0]


class Arrow(Frame):
    needs = (("pyarrow", "pip install pyarrow"),)
    arms = {
        "plain": f"table.take(rows) of a memory-mapped IPC file, {PLAIN}",
        "random": f"the same {RANDOM}",
        "announced": "majorfault.arrow.take",
        "ahead": "the same, with two batches ahead",
        "warm": "table.take(rows) of rows that are cached: what the library takes by itself",
        "take": BOUND,
    }
    reference = "ahead"
    what = "shuffled rows of an Arrow table of one record batch: fixed lists of 4096 numbers"
    chunks = 1

    @classmethod
    def make(cls, path, size):
        import pyarrow as pa

        schema = pa.schema({"features": pa.list_(pa.uint32(), NUMBERS)})
        step = -(-(size // ROW) // cls.chunks)
        with open(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for begin in range(0, size // ROW, step):
                end = min(begin + step, size // ROW)
                values = pa.array(np.arange(begin * NUMBERS, end * NUMBERS, dtype="u4"))
                writer.write_batch(pa.record_batch([pa.FixedSizeListArray.from_arrays(values, NUMBERS)], schema=schema))
                written(file)

    def open(self, arm):
        import pyarrow as pa

        self.table = pa.ipc.open_file(pa.memory_map(self.path)).read_all()
        chunks = self.table.column(0).chunks
        self.firsts = np.cumsum([0] + [len(chunk) for chunk in chunks])
        self.places = np.array([majorfault.file_of(chunk.values.buffers()[1])[1] for chunk in chunks])
        if arm == "random":
            majorfault.advise(self.table, "random")

    def mapped(self):
        return self.table

    @staticmethod
    def first(found):
        return np.concatenate([chunk.flatten().to_numpy()[::NUMBERS] for chunk in found.column(0).chunks])

    def plain(self):
        for batch in self.wanted_rows:
            yield self.first(self.table.take(batch))

    random = warm = plain

    def announced(self):
        return self.announcing(self.wanted_rows)

    def ahead(self):
        return self.announcing(majorfault.Ahead(self.wanted_rows, self.table, 2))

    def announcing(self, batches):
        import majorfault.arrow

        for batch in batches:
            yield self.first(majorfault.arrow.take(self.table, batch))

    def take(self):
        for batch in self.wanted_rows:
            chunk = np.searchsorted(self.firsts, batch, side="right") - 1
            yield self.taken(self.places[chunk] + (batch - self.firsts[chunk]) * ROW, ROW).view("u4")[:, 0]


class Chunks(Arrow):
    what = "the same of sixteen record batches"
    file = "chunks"
    chunks = 16
    arms = Arrow.arms | {"warm": "majorfault.arrow.take of rows that are cached: what it and the library take by themselves"}
    warm = Arrow.announced

    def use_once(self, arm):
        if arm in ("plain", "random"):
            # Not the whole table: what that allocates would be kept, outside of the limit.
            self.first(self.table.slice(0, 2).take([0, 1]))
        else:
            super().use_once(arm)


class H5ad(Frame):
    needs = (("anndata", "pip install anndata"), ("h5py", "pip install h5py"))
    arms = {
        "plain": f"backed[rows].X, {PLAIN}",
        "random": "the same with POSIX_FADV_RANDOM",
        "prefetch": "majorfault.h5py.prefetch, then the same",
        "ahead": "the same, with two batches ahead",
        "no_sieve": "two batches ahead, and file[\"X\"][rows] of h5py, opened with a sieve buffer of 4 KiB",
        "warm": "backed[rows].X of rows that are cached: what the library takes by itself",
        "take": BOUND,
    }
    reference = "ahead"
    what = "shuffled rows of a backed h5ad, dense: 4096 numbers each, contiguous"
    file = "dense.h5ad"

    @staticmethod
    def make(path, size):
        import anndata

        numbers = np.zeros((size // ROW, NUMBERS), "f4")
        numbers += np.arange(size // ROW, dtype="f4")[:, None]
        anndata.AnnData(numbers).write_h5ad(path)
        with open(path, "rb") as file:
            written(file)

    def open(self, arm):
        import anndata
        import h5py
        import majorfault.h5py

        if arm == "no_sieve":
            # Files that are open twice share what was set first: not beside the other.
            access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
            access.set_sieve_buf_size(4096)
            self.data = h5py.File(h5py.h5f.open(self.path.encode(), h5py.h5f.ACC_RDONLY, access))["X"]
            return
        self.backed = anndata.read_h5ad(self.path, backed="r")
        self.data = self.backed.file["X"]
        if arm == "random":
            os.posix_fadvise(self.backed.file._file.id.get_vfd_handle(), 0, 0, os.POSIX_FADV_RANDOM)
        if arm == "take":
            self.places = [self.places_of(batch) for batch in self.wanted_rows]

    def places_of(self, batch):
        """A dense row is at its own place."""
        return [(self.data.id.get_offset() + int(row) * ROW, ROW) for row in batch]

    def plain(self):
        for batch in self.wanted_rows:
            yield self.first(self.backed[batch].X)

    random = warm = plain

    @staticmethod
    def first(found):
        return np.asarray(found)[:, 0]

    def __prefetch__(self, rows):
        import majorfault.h5py

        return majorfault.h5py.prefetch(self.data, rows)

    def prefetch(self):
        for batch in self.wanted_rows:
            self.__prefetch__(batch)
            yield self.first(self.backed[batch].X)

    def ahead(self):
        for batch in majorfault.Ahead(self.wanted_rows, self, 2):
            yield self.first(self.backed[batch].X)

    def no_sieve(self):
        for batch in majorfault.Ahead(self.wanted_rows, self, 2):
            # h5py wants rows in their order.
            order = np.argsort(batch)
            found = np.empty(len(batch), "f4")
            found[order] = self.first(self.data[batch[order]])
            yield found

    def take(self):
        for batch in self.wanted_rows:
            yield self.taken([begin for begin, _ in self.places_of(batch)], ROW).view("f4")[:, 0]

    def expected(self):
        return [batch.astype("f4") for batch in self.wanted_rows]


class Sparse(H5ad):
    what = "shuffled rows of a backed h5ad, sparse: 2048 numbers each, data and indices in the chunks that anndata makes"
    file = "sparse.h5ad"
    arms = {name: told for name, told in H5ad.arms.items() if name != "no_sieve"} | {"prefetch": "majorfault.h5py.prefetch_sparse, then the same", "take": f"{BOUND} (whole chunks)"}

    @staticmethod
    def make(path, size):
        import anndata
        from scipy import sparse

        rows, numbers = size // ROW, NUMBERS // 2
        data = np.repeat(np.arange(1, rows + 1, dtype="f4"), numbers)
        indices = np.tile(np.arange(0, 2 * numbers, 2, dtype="i4"), rows)
        matrix = sparse.csr_matrix((data, indices, np.arange(rows + 1, dtype="i8") * numbers), shape=(rows, 2 * numbers))
        anndata.AnnData(matrix).write_h5ad(path)
        with open(path, "rb") as file:
            written(file)

    def places_of(self, batch):
        import majorfault.h5py

        return list(majorfault.h5py.places_sparse(self.data, batch))

    @staticmethod
    def first(found):
        return np.array(found[:, 0].todense()).reshape(-1) - 1

    def __prefetch__(self, rows):
        import majorfault.h5py

        return majorfault.h5py.prefetch_sparse(self.data, rows)

    def use_once(self, arm):
        super().use_once("plain" if arm == "take" else arm)

    def take(self):
        for batch, places in zip(self.wanted_rows, self.places, strict=True):
            for length in {length for _, length in places}:
                self.taken([begin for begin, other in places if other == length], length)
            yield batch.astype("f4")

    def wanted(self):
        return sum(length for batch in self.wanted_rows for _, length in self.places_of(batch))


TENSOR = 16 << 20
"""Bytes of each tensor of the weights."""


class Safetensors(Frame):
    needs = (("safetensors", "pip install safetensors"),)
    arms = {
        "dd": "dd if=FILE of=/dev/null bs=1M",
        "plain": f"safe_open, get_tensor of each name, {PLAIN}",
        "names_ahead": "the names by majorfault.safetensors.names_ahead",
        "load": "majorfault.load first, then plain",
        "warm": "plain of a file that is cached: what the library takes by itself",
    }
    reference = "dd"
    what = "all tensors of a safetensors file (16 MiB each) as numpy arrays that are kept"
    file = "weights.safetensors"
    is_kept = True

    @staticmethod
    def rows(size):
        return 0

    @staticmethod
    def make(path, size):
        header = {f"layer.{at:04}": {"dtype": "F32", "shape": [TENSOR // 4], "data_offsets": [at * TENSOR, (at + 1) * TENSOR]} for at in range(size // TENSOR)}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for at in range(size // TENSOR):
                np.full(TENSOR // 4, at, "f4").tofile(file)
                written(file)

    def use_once(self, arm):
        import majorfault.safetensors
        import safetensors.numpy

        with tempfile.NamedTemporaryFile() as file:
            safetensors.numpy.save_file({"one": np.zeros(4)}, file.name)
            list(majorfault.safetensors.names_ahead(file.name))
            with safetensors.safe_open(file.name, "np") as tensors:
                tensors.get_tensor("one")
            majorfault.load(file.name)

    def dd(self):
        subprocess.run(["dd", f"if={self.path}", "of=/dev/null", "bs=1M"], check=True, stderr=subprocess.DEVNULL)
        yield from self.expected()

    def got(self, names):
        from safetensors import safe_open

        found, kept = [], []
        with safe_open(self.path, "np") as tensors:
            for name in names or tensors.keys():
                tensor = tensors.get_tensor(name)
                found.append(tensor[-1])
                if self.is_kept:
                    kept.append(tensor)
        yield np.array(found)

    def plain(self):
        return self.got(None)

    warm = plain

    def warm_up(self):
        majorfault.load(self.path)

    def names_ahead(self):
        import majorfault.safetensors

        return self.got(majorfault.safetensors.names_ahead(self.path))

    def load(self):
        majorfault.load(self.path)
        return self.got(None)

    def expected(self):
        return [np.arange(os.path.getsize(self.path) // TENSOR, dtype="f4")]

    def wanted(self):
        return os.path.getsize(self.path)


class Given(Safetensors):
    what = "all tensors of a safetensors file (16 MiB each) as numpy arrays that are let go of one by one, as after a copy to a GPU"
    file = "given.safetensors"
    is_kept = False


FRAMES = {
    "column": Column,
    "datasets": Datasets,
    "loader": Loader,
    "arrow": Arrow,
    "arrow_chunks": Chunks,
    "h5ad": H5ad,
    "h5ad_sparse": Sparse,
    "safetensors": Safetensors,
    "safetensors_given": Given,
}


def cooled(frame):
    """Nothing of the file is cached. Pages that the kernel is still reading ahead are not dropped at once."""
    limit = time.monotonic() + 10
    while True:
        if frame.mapped() is not None:
            majorfault.release(frame.mapped(), drop=True)
        drop(frame.path)
        rest = 0 if frame.mapped() is None else majorfault.residency(frame.mapped()).resident_bytes
        # Pages that metadata shares with rows are mapped.
        if rest <= 1 << 20:
            return
        assert time.monotonic() < limit, f"{rest} bytes of {frame.path} stay cached"
        time.sleep(0.01)


def measure(kind, arm, path, batches, limit):
    """In a process of its own."""
    with Cost() as opening:
        frame = kind(path, batches)
        frame.open(arm)
    frame.use_once(arm)
    cooled(frame)
    if limit:
        limit.join()
    if arm.startswith("warm"):
        frame.warm_up()
    with Cost() as cost:
        found = list(getattr(frame, arm)())
    found, expected = np.concatenate(found), np.concatenate(frame.expected())
    assert found.shape == expected.shape and (found == expected).all(), f"{arm} gave other rows"
    return cost.record() | {"wanted": frame.wanted(), "opening": opening.record()}


def memory_of(options, kind, size):
    if issubclass(kind, Safetensors):
        return size * 6 // 5
    return (size // 4 if options.memory == "quarter" else sized(options.memory)) if options.memory else 0


def session(options, name, folder):
    """All rounds of one frame."""
    kind = FRAMES[name]
    size = options.weights if issubclass(kind, Safetensors) else options.size
    path, memory = os.path.join(folder, kind.file), memory_of(options, kind, size)
    made = forked(lambda: kind.make(path, size))
    assert made is None, made
    arms = [arm for arm in kind.arms if not options.arms or arm in options.arms.split(",")]

    def one(round_, arm):
        rng = np.random.default_rng((round_, sorted(FRAMES).index(name), list(kind.arms).index(arm)))
        rows = rng.permutation(kind.rows(size))[: options.batches * options.batch]
        batches = list(rows.reshape(-1, options.batch))
        try:
            with Limit(memory) if memory else nullcontext() as limit:
                drop(path)
                return forked(measure, kind, arm, path, batches, limit)
        except OSError as failure:
            sys.exit(f"{NO_GROUP} ({failure})")

    results = interleaved(arms, options.rounds, one)
    done = next((run for runs in results.values() for run in runs if "failed" not in run), {"wanted": 0})
    batches = f"; {options.batches} batches of {options.batch} rows" if kind.rows(size) else ""
    print(f"\n{name}: {kind.what}{batches}; {size >> 20} MiB, cold; {conditions(path, memory, options.rounds)}; wanted {done['wanted'] / 2**20:.1f} MiB\n")
    print_table(results, kind.reference if kind.reference in arms else arms[0], kind.arms)
    opening = [run["opening"] for runs in results.values() for run in runs if "failed" not in run]
    if opening:
        print(f"opening, not in these times: {np.median([one['seconds'] for one in opening]):.3f} s, {np.median([one['bytes'] for one in opening]) / 2**20:.1f} MiB")
    sys.stdout.flush()
    os.remove(path)
    return results


def missing(kind):
    """How to get the libraries that are not installed."""
    told = []
    for module, remedy in kind.needs:
        try:
            importlib.import_module(module)
        except ImportError as failure:
            told.append(f"{module} is not installed ({failure}): {remedy}")
    return told


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=sized, default="1G")
    parser.add_argument("--weights", type=sized, default="2G", help="size of the file of safetensors")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=",".join(FRAMES), help="frames: %(default)s")
    parser.add_argument("--arms", help="only these of each frame")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--memory", help="limit for each arm: a size, or quarter (of the file)")
    parser.add_argument("--read-ahead", type=int, help="KiB that the device reads ahead, instead of what it has")
    parser.add_argument("--json", help="append the samples to this file")
    options = parser.parse_args(arguments)
    unknown = set(options.only.split(",")) - set(FRAMES)
    if unknown:
        parser.error(f"there is no frame {sorted(unknown)[0]}; there are {', '.join(FRAMES)}")
    return options


def main():
    options = options_of(sys.argv[1:])
    with Folder(options.dir) as folder, ReadAhead(folder.path, options.read_ahead) if options.read_ahead else nullcontext():
        skipped = {}
        for name in options.only.split(","):
            told = missing(FRAMES[name])
            if told:
                skipped[name] = told
                continue
            results = session(options, name, folder.path)
            if options.json:
                append_json(options.json, options, frame=name, results=results)
        for name, told in skipped.items():
            print(f"\n{name} was not measured: {'; '.join(told)}")


if __name__ == "__main__":
    main()
