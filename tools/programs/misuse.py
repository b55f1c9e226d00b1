"""Databases and data libraries from PyPI and Debian, misused: python misuse.py make DATA | run CASE plain|remedied HOW [ON].

The working directory holds the data. A case is a generator that opens its data, and then does one unit of its work for each
`next`. HOW is `forever`, `s=SECONDS` or `n=UNITS`; the last two print units and seconds. `ready` is written when work begins."""
import ctypes
import mmap
import os
import random
import sys
import time

MIB = 1 << 20
POPULATE_READ = 22
LIBC = ctypes.CDLL(None, use_errno=True)


def advise(name, advice):
    """madvise(2) for all mappings of files whose path ends so, as a program's author would write it."""
    LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in open("/proc/self/maps"):
        if line.rstrip().endswith(name):
            first, end = (int(part, 16) for part in line.split()[0].split("-"))
            LIBC.madvise(first, end - first, advice)


def soon(file, offset, length=4096):
    os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)


def sure(file):
    file.flush()
    os.fsync(file.fileno())


# ---------------------------------------------------------------- data

ROWS = 400_000


def make_lmdb():
    import lmdb

    with lmdb.open("base", map_size=1 << 30) as base:
        for first in range(0, ROWS, 50_000):
            with base.begin(write=True) as change:
                for row in range(first, first + 50_000):
                    change.put(b"%08d" % row, os.urandom(1000), append=True)
        base.sync(True)


def make_sqlite():
    import sqlite3

    base = sqlite3.connect("data.db")
    count = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
    base.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, v BLOB)")
    base.execute(f"INSERT INTO t {count} SELECT i, randomblob(1000) FROM n")
    base.commit()


def rocks_options(mapped):
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.set_allow_mmap_reads(mapped)
    options.set_use_direct_reads(not mapped)
    # Its default is MADV_RANDOM for mapped tables.
    options.set_advise_random_on_open(not mapped or "alone" in "".join(sys.argv))
    options.set_compression_type(rocksdict.DBCompressionType.none())
    return options


def make_rocksdb():
    import rocksdict

    base = rocksdict.Rdict("rocks", rocks_options(False))
    for row in range(ROWS):
        base[b"%08d" % row] = os.urandom(1000)
    base.flush()
    base.close()


def make_leveldb():
    import plyvel

    base = plyvel.DB("level", create_if_missing=True, compression=None, write_buffer_size=16 * MIB, max_file_size=64 * MIB)
    for first in range(0, ROWS, 10_000):
        with base.write_batch() as batch:
            for row in range(first, first + 10_000):
                batch.put(b"%08d" % row, os.urandom(1000))
    base.compact_range()
    base.close()


def make_gdbm():
    import dbm.gnu

    base = dbm.gnu.open("data.gdbm", "nf")
    for row in range(200_000):
        base[b"%08d" % row] = os.urandom(1500)
    base.sync()
    base.close()


def make_matrix():
    with open("matrix.bin", "wb") as data:
        for _ in range(512):
            data.write(os.urandom(MIB))
        sure(data)


def make_arrow():
    import numpy
    import pyarrow as pa

    table = pa.table({name: numpy.random.default_rng(1).random(8_000_000) for name in "abcdef"})
    with pa.OSFile("table.arrow", "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=8_000_000)


def make_netcdf():
    import numpy
    from scipy.io import netcdf_file

    with netcdf_file("field.nc", "w") as file:
        file.createDimension("t", 2000)
        file.createDimension("x", 32_000)
        field = file.createVariable("field", "f8", ("t", "x"))
        field[:] = numpy.random.default_rng(1).random((2000, 32_000))


def make_safetensors():
    import numpy
    from safetensors.numpy import save_file

    save_file({"embedding": numpy.random.default_rng(1).random((100_000, 1024), dtype="float32")}, "model.safetensors")


def make_usearch():
    import numpy
    from usearch.index import Index

    index = Index(ndim=768, metric="l2sq", connectivity=8, expansion_add=8)
    vectors = numpy.random.default_rng(1).random((60_000, 768), dtype="float32")
    index.add(numpy.arange(60_000), vectors)
    index.save("vectors.usearch")


def make_annoy():
    from annoy import AnnoyIndex

    index = AnnoyIndex(768, "euclidean")
    index.set_seed(1)
    for item in range(100_000):
        index.add_item(item, [random.random() for _ in range(8)] * 96)
    index.build(1)
    index.save("vectors.annoy")


def make_small():
    import numpy

    os.mkdir("small")
    for number in range(20_000):
        numpy.save(f"small/{number}.npy", numpy.zeros(2048))
    os.sync()


def make_bdb():
    import bsddb3.db as bdb

    base = bdb.DB()
    base.open("data.bdb", dbtype=bdb.DB_BTREE, flags=bdb.DB_CREATE)
    for row in range(100_000):
        base.put(b"%08d" % row, os.urandom(1000))
    base.close()


def make_duckdb():
    import duckdb

    base = duckdb.connect("data.duckdb")
    base.execute("CREATE TABLE t AS SELECT range AS i, random() AS a, random() AS b, random() AS c FROM range(10000000)")
    base.close()


def make_h5py():
    import h5py
    import numpy

    with h5py.File("data.h5", "w") as file:
        file.create_dataset("a", data=numpy.random.default_rng(1).random((128, 1 << 17)), chunks=(1, 1 << 17))


def make_nothing():
    pass


# ---------------------------------------------------------------- databases


def lmdb_base(readahead):
    import lmdb

    return lmdb.open("base", map_size=1 << 30, readonly=True, lock=False, readahead=readahead)


def lmdb_lookups(is_remedied):
    """The default, which reads ahead: open the environment with MDB_NORDAHEAD."""
    view = lmdb_base(not is_remedied).begin()
    while True:
        yield view.get(b"%08d" % random.randrange(ROWS))


def lmdb_scan(is_remedied):
    """MDB_NORDAHEAD for a scan: without it. A unit is 1 000 rows."""
    view = lmdb_base(is_remedied).begin()
    while True:
        for number, (_, value) in enumerate(view.cursor()):
            len(value)
            if number % 1000 == 999:
                yield


def lmdb_warm_up(is_remedied):
    """Populated after MADV_RANDOM, 16 MiB a unit: populated before it."""
    base = lmdb_base(is_remedied)
    advise("data.mdb", mmap.MADV_NORMAL if is_remedied else mmap.MADV_RANDOM)
    size = os.path.getsize("base/data.mdb") // mmap.PAGESIZE * mmap.PAGESIZE
    first = next(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.rstrip().endswith("data.mdb"))
    while True:
        for at in range(0, size - 16 * MIB, 16 * MIB):
            LIBC.madvise(ctypes.c_void_p(first + at), ctypes.c_size_t(16 * MIB), POPULATE_READ)
            yield base
        LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
        drop("base/data.mdb")


def drop(path):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def lmdb_hot(is_remedied):
    """MADV_RANDOM under pressure with hot keys: the hot part in a pool of one's own."""
    from functools import lru_cache

    view = lmdb_base(False).begin()
    get = lru_cache(10_000)(view.get) if is_remedied else view.get
    while True:
        row = random.randrange(10_000) * 39 if random.random() < 0.9 else random.randrange(ROWS)
        yield get(b"%08d" % row)


def lmdb_scans(is_remedied):
    """Scan after scan over more than the limit, which the remedied program's cgroup has raised. A unit is 1 000 rows."""
    yield from lmdb_scan(True)


def sqlite_base(mapped):
    import sqlite3

    base = sqlite3.connect("data.db")
    base.execute(f"PRAGMA mmap_size = {1_000_000_000 if mapped else 0}")
    base.execute(f"PRAGMA cache_size = {-100 if mapped else -65_536}")
    return base


def sqlite_lookups(is_remedied):
    """Mapped: by calls, with a larger cache."""
    base = sqlite_base(not is_remedied)
    while True:
        row = random.randrange(ROWS) + 1
        yield base.execute("SELECT v FROM t WHERE i = ?", (row,)).fetchone()


def sqlite_scans(is_remedied):
    """Scan after scan over more than the limit, which the remedied program's cgroup has raised. A unit is 1 000 rows."""
    base = sqlite_base(True)
    while True:
        for first in range(1, ROWS, 1000):
            query = "SELECT count(substr(v, 500, 1)) FROM t WHERE i BETWEEN ? AND ?"
            yield base.execute(query, (first, first + 999)).fetchone()


def rocksdb_lookups(is_remedied):
    """Mapped: direct reads."""
    import rocksdict

    base = rocksdict.Rdict("rocks", rocks_options(not is_remedied), access_type=rocksdict.AccessType.read_only())
    while True:
        yield base.get(b"%08d" % random.randrange(ROWS))


def rocksdb_alone(is_remedied):
    """Mapped under MADV_RANDOM, one lookup at a time: direct reads, many keys at once. A unit is 32 lookups."""
    import rocksdict

    base = rocksdict.Rdict("rocks", rocks_options(not is_remedied), access_type=rocksdict.AccessType.read_only())
    options = rocksdict.ReadOptions()
    options.set_async_io(True)
    while True:
        keys = [b"%08d" % random.randrange(ROWS) for _ in range(32)]
        yield base.get(keys, read_opt=options) if is_remedied else [base.get(key) for key in keys]


def leveldb_lookups(is_remedied):
    """It maps its tables: MADV_RANDOM for them."""
    import plyvel

    base = plyvel.DB("level", compression=None, max_open_files=1000, lru_cache_size=MIB)
    for row in range(0, ROWS, 2000):
        base.get(b"%08d" % row)
    if is_remedied:
        advise(".ldb", mmap.MADV_RANDOM)
    while True:
        yield base.get(b"%08d" % random.randrange(ROWS))


def gdbm_lookups(is_remedied):
    """It maps its file: MADV_RANDOM for it."""
    import dbm.gnu

    base = dbm.gnu.open("data.gdbm", "r")
    base[b"%08d" % 0]
    if is_remedied:
        advise("data.gdbm", mmap.MADV_RANDOM)
    while True:
        yield base[b"%08d" % random.randrange(200_000)]


def bdb_lookups(is_remedied):
    """A cache of 1 MiB before the page cache: one that holds the data."""
    import bsddb3.db as bdb

    open("data.bdb", "rb").read()
    environment = bdb.DBEnv()
    environment.set_cachesize(0, (256 if is_remedied else 1) * MIB)
    environment.open(None, bdb.DB_CREATE | bdb.DB_PRIVATE | bdb.DB_INIT_MPOOL)
    base = bdb.DB(environment)
    base.open(os.path.abspath("data.bdb"), flags=bdb.DB_RDONLY)
    while True:
        for _ in range(1000):
            base.get(b"%08d" % random.randrange(100_000))
        yield


def duckdb_sums(is_remedied):
    """memory_limit below the table, all of it in the page cache: one that holds it."""
    import duckdb

    open("data.duckdb", "rb").read()
    base = duckdb.connect("data.duckdb", read_only=True)
    base.execute(f"SET memory_limit = '{1000 if is_remedied else 64}MB'; SET threads = 2")
    while True:
        yield base.execute("SELECT sum(a), sum(b), sum(c) FROM t").fetchone()


# ---------------------------------------------------------------- data libraries


def matrix(shape):
    import numpy

    return numpy.memmap("matrix.bin", dtype="uint8", mode="r", shape=shape)


def numpy_samples(is_remedied):
    """Shuffled rows of 4 KiB: MADV_RANDOM."""
    rows = matrix((131_072, 4096))
    if is_remedied:
        rows._mmap.madvise(mmap.MADV_RANDOM)
    while True:
        yield int(rows[random.randrange(131_072)].sum())


def numpy_long_samples(is_remedied):
    """Shuffled rows of 16 KiB: MADV_RANDOM, as the doctor says; it cannot see that a row has four pages."""
    rows = matrix((32_768, 16_384))
    if is_remedied:
        rows._mmap.madvise(mmap.MADV_RANDOM)
    while True:
        yield int(rows[random.randrange(32_768)].sum())


def numpy_columns(is_remedied):
    """A column, 256 KiB from row to row, a unit each row: asked for 64 steps ahead."""
    stride = 256 << 10
    rows = matrix((2048, stride))
    file = os.open("matrix.bin", os.O_RDONLY)
    while True:
        for column in range(0, stride, 8192):
            for row in range(2048):
                if is_remedied and row % 64 == 0:
                    for step in range(64):
                        soon(file, (row + step) * stride + column)
                yield int(rows[row, column])


def numpy_random_scan(is_remedied):
    """MADV_RANDOM for a scan, a MiB a unit: MADV_SEQUENTIAL."""
    rows = matrix((512, MIB))
    rows._mmap.madvise(mmap.MADV_SEQUENTIAL if is_remedied else mmap.MADV_RANDOM)
    while True:
        for row in range(512):
            yield int(rows[row].sum())


def numpy_passes(is_remedied):
    """Pass after pass over more than the limit, which the remedied program's cgroup has raised. A MiB a unit."""
    rows = matrix((512, MIB))
    while True:
        for row in range(512):
            yield int(rows[row].sum())


def arrow_rows(is_remedied):
    """Random rows of a mapped file: MADV_RANDOM for it."""
    import pyarrow as pa

    table = pa.ipc.open_file(pa.memory_map("table.arrow")).read_all()
    if is_remedied:
        advise("table.arrow", mmap.MADV_RANDOM)
    while True:
        yield table.slice(random.randrange(8_000_000), 1).to_pylist()


def polars_rows(is_remedied):
    """Random rows of a mapped file: MADV_RANDOM for it."""
    import polars

    frame = polars.scan_ipc("table.arrow")
    frame.slice(0, 1).collect()
    if is_remedied:
        advise("table.arrow", mmap.MADV_RANDOM)
    while True:
        yield frame.slice(random.randrange(8_000_000), 1).collect()


def netcdf_points(is_remedied):
    """Random points of a mapped field: MADV_RANDOM."""
    from scipy.io import netcdf_file

    field = netcdf_file("field.nc", "r", mmap=True).variables["field"].data
    if is_remedied:
        advise("field.nc", mmap.MADV_RANDOM)
    while True:
        yield float(field[random.randrange(2000), random.randrange(32_000)])


def safetensors_rows(is_remedied):
    """Random rows of an embedding: MADV_RANDOM."""
    from safetensors import safe_open

    part = safe_open("model.safetensors", framework="np").__enter__().get_slice("embedding")
    if is_remedied:
        advise("model.safetensors", mmap.MADV_RANDOM)
    while True:
        row = random.randrange(100_000)
        yield float(part[row : row + 1].sum())


def usearch_queries(is_remedied):
    """Queries of a mapped index: MADV_RANDOM."""
    import numpy
    from usearch.index import Index

    index = Index.restore("vectors.usearch", view=True)
    generator = numpy.random.default_rng(2)
    if is_remedied:
        advise("vectors.usearch", mmap.MADV_RANDOM)
    while True:
        yield index.search(generator.random(768, dtype="float32"), 5)


def usearch_tight(is_remedied):
    """The same where the index just fits into the limit, and is evicted nevertheless: a higher limit."""
    yield from usearch_queries(False)


def annoy_items(is_remedied):
    """Vectors of a mapped index: MADV_RANDOM."""
    from annoy import AnnoyIndex

    index = AnnoyIndex(768, "euclidean")
    index.load("vectors.annoy")
    if is_remedied:
        advise("vectors.annoy", mmap.MADV_RANDOM)
    while True:
        yield index.get_distance(random.randrange(100_000), random.randrange(100_000))


def numpy_small_files(is_remedied):
    """20 000 files mapped one by one: the next 64 asked for before."""
    import numpy

    while True:
        for number in range(20_000):
            if is_remedied and number % 64 == 0:
                for next_one in range(number, min(number + 64, 20_000)):
                    file = os.open(f"small/{next_one}.npy", os.O_RDONLY)
                    soon(file, 0, 0)
                    os.close(file)
            yield float(numpy.load(f"small/{number}.npy", mmap_mode="r").sum())


def numpy_temporaries(is_remedied):
    """Arrays of 1 MiB mapped and unmapped by two threads, MALLOC_MMAP_THRESHOLD_ set by mistake: as the doctor says."""
    import threading
    import numpy

    arrays = [numpy.ones(MIB // 8) for _ in range(2)]
    counts = [0, 0]

    def work(number):
        while True:
            arrays[number] * 2.0 + 1.0
            counts[number] += 1

    for number in range(2):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    done = 0
    while True:
        while sum(counts) < done + 1000:
            time.sleep(0.001)
        done += 1000
        yield


def numpy_floats(is_remedied):
    """Temporaries of 8 MiB for each MiB of a pass, as malloc has them: as the doctor says, by its environment."""
    rows = matrix((512, MIB))
    while True:
        for row in rows:
            yield float(row.astype("float64").std())


def safetensors_load(is_remedied):
    """A model of 64 MiB loaded again and again, as malloc has it: as the doctor says, by its environment."""
    import numpy
    from safetensors.numpy import load_file, save_file

    save_file({str(number): numpy.ones((256, 1024), dtype="float32") for number in range(64)}, "small.safetensors")
    while True:
        yield sum(float(part.sum()) for part in load_file("small.safetensors").values())


def numpy_reopened(is_remedied):
    """A file mapped for each access, by two threads: mapped once."""
    import threading
    import numpy

    numpy.save("part.npy", numpy.ones(4096))
    counts = [0, 0]
    kept = numpy.load("part.npy", mmap_mode="r")

    def work(number):
        while True:
            (kept if is_remedied else numpy.load("part.npy", mmap_mode="r"))[:512].sum()
            counts[number] += 1

    for number in range(2):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    done = 0
    while True:
        while sum(counts) < done + 1000:
            time.sleep(0.001)
        done += 1000
        yield


def python_direct(is_remedied):
    """O_DIRECT with a buffer that is not aligned, and calls as the way out: aligned."""
    file = os.open("matrix.bin", os.O_RDONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, 2 * MIB)
    buffer = memoryview(memory)[0:65_536] if is_remedied else memoryview(memory)[1 : 1 + 65_536]
    yield
    while True:
        at = random.randrange(8192) * 65_536
        try:
            os.preadv(file, [buffer], at)
        except OSError:
            continue
        yield


def numpy_huge(is_remedied):
    """An array on a tmpfs of huge pages, mapped at an address that does not fit: at one that does. A unit is a pass."""
    import numpy

    size = 256 * MIB
    path = "huge/array.bin"
    if not os.path.exists(path):
        with open(path, "wb") as out:
            for _ in range(256):
                out.write(bytes(MIB))
    file = os.open(path, os.O_RDWR)
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    while True:
        room = LIBC.mmap(None, size + 4 * MIB, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        base = (room + 2 * MIB - 1) // (2 * MIB) * (2 * MIB) + (0 if is_remedied else 4096)
        LIBC.mmap(base, size, 3, mmap.MAP_SHARED | 0x10, file, 0)
        array = numpy.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(base))
        for _ in range(4):
            int(array[:: mmap.PAGESIZE].sum())
            time.sleep(0.02)
        del array
        LIBC.munmap(room, size + 4 * MIB)
        yield


def numpy_truncated(is_remedied):
    """Another program cuts the mapped file each second, and writes it anew: it replaces it by rename."""
    import numpy
    import subprocess

    write = "head -c 67108864 /dev/zero > new && mv new part.bin" if is_remedied else "head -c 67108864 /dev/zero > part.bin"
    subprocess.run(["sh", "-c", write], check=True)
    array = numpy.memmap("part.bin", dtype="uint8", mode="r")
    started, is_cut = time.monotonic(), False
    while True:
        if time.monotonic() > started + 2 and not is_cut:
            is_cut = True
            cut = "head -c 33554432 /dev/zero > new && mv new part.bin" if is_remedied else ": > part.bin; head -c 33554432 /dev/zero > part.bin"
            subprocess.run(["sh", "-c", cut], check=True)
        # A careful program: only the first half, which is still there.
        yield int(array[: 1 << 20].sum())


def numpy_will_need(is_remedied):
    """WILLNEED for all of it before a pass, a unit: in pieces, as the doctor says."""
    import numpy

    size = 512 * MIB
    while True:
        drop("matrix.bin")
        array = numpy.memmap("matrix.bin", dtype="uint8", mode="r")
        if is_remedied:
            for at in range(0, size, 2 * MIB):
                array._mmap.madvise(mmap.MADV_WILLNEED, at, 2 * MIB)
        else:
            array._mmap.madvise(mmap.MADV_WILLNEED)
        # Used in an order that read-ahead does not know.
        for page in random.Random(1).sample(range(size // 65_536), 4096):
            array[page * 65_536]
        del array
        yield


def numpy_sparse(is_remedied):
    """A page in each 2 MiB of a mapping of 64 GiB as a hash table: one that is dense. A unit is 1 000 entries."""
    import numpy

    step = 8 if is_remedied else 2 * MIB
    memory = mmap.mmap(-1, 32_768 * step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    array = numpy.frombuffer(memory, dtype="uint8")
    while True:
        for number in range(32_768):
            array[number * step] = 1
            if number % 1000 == 999:
                yield


def numpy_holes(is_remedied):
    """A page in each 2 MiB of a sparse file of 64 GiB, whose holes are read ahead: MADV_RANDOM. A unit is 100 pages."""
    import numpy

    with open("sparse.bin", "wb") as data:
        data.truncate(64 << 30)
    array = numpy.memmap("sparse.bin", dtype="uint8", mode="r")
    if is_remedied:
        array._mmap.madvise(mmap.MADV_RANDOM)
    while True:
        for number in random.Random(1).sample(range(32_768), 30_000):
            array[number * 2 * MIB]
            if number % 100 == 99:
                yield


def h5py_points(is_remedied):
    """Points of chunks of 1 MiB with a chunk cache too small for one: with one that holds them."""
    import h5py

    open("data.h5", "rb").read()
    file = h5py.File("data.h5", "r", rdcc_nbytes=(256 if is_remedied else 0) * MIB, driver="sec2")
    data = file["a"]
    while True:
        yield float(data[random.randrange(128), random.randrange(1 << 17) : ][0])


# ---------------------------------------------------------------- running


def work(case, is_remedied, how):
    random.seed(1)
    steps = case(is_remedied)
    next(steps)
    open("ready", "w").close()
    started = time.monotonic()
    kind, _, most = how.partition("=")
    done = 0
    while not (kind == "n" and done >= int(most)) and not (kind == "s" and time.monotonic() - started >= float(most)):
        next(steps)
        done += 1
    print(done, time.monotonic() - started, flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        globals()["make_" + sys.argv[2]]()
    else:
        work(globals()[sys.argv[2]], sys.argv[3] == "remedied", sys.argv[4])
