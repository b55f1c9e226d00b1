"""Databases and data libraries used as they are meant to be: python healthy.py CASE, for ever."""
import os
import random
import sys


def lmdb_warm():
    import lmdb

    view = lmdb.open("base", map_size=1 << 30, readonly=True, lock=False).begin()
    sum(len(value) for _, value in view.cursor())
    while True:
        view.get(b"%08d" % random.randrange(400_000))


def lmdb_cold_scan():
    import lmdb

    view = lmdb.open("base", map_size=1 << 30, readonly=True, lock=False).begin()
    while True:
        for _, value in view.cursor():
            sum(value)


def rocksdb_filling():
    import rocksdict

    base = rocksdict.Rdict("filled.rocks", rocksdict.Options(raw_mode=True))
    while True:
        base[b"%08d" % random.randrange(100_000)] = os.urandom(300)


def leveldb_filling():
    import plyvel

    base = plyvel.DB("filled.level", create_if_missing=True)
    while True:
        base.put(b"%08d" % random.randrange(100_000), os.urandom(300))


def duckdb_groups():
    import duckdb

    base = duckdb.connect()
    while True:
        base.execute("SELECT range % 1000 AS k, sum(range) FROM range(5000000) GROUP BY k").fetchall()


def sqlite_rows():
    import sqlite3

    base = sqlite3.connect("data.db")
    while True:
        base.execute("SELECT v FROM t WHERE i = ?", (random.randrange(20_000) + 1,)).fetchone()


def numpy_product():
    import numpy

    left, right = numpy.ones((1500, 1500)), numpy.ones((1500, 1500))
    while True:
        left @ right


def numpy_pass():
    import numpy

    rows = numpy.memmap("matrix.bin", dtype="uint8", mode="r", shape=(512, 1 << 20))
    while True:
        for row in rows:
            int(row.max())


def pandas_groups():
    import numpy
    import pandas

    frame = pandas.DataFrame({"k": numpy.arange(1_000_000) % 1000, "v": numpy.random.default_rng(1).random(1_000_000)})
    while True:
        frame.groupby("k").v.agg(["mean", "std"])


def polars_groups():
    import polars

    frame = polars.DataFrame({"k": [number % 100 for number in range(500_000)], "v": range(500_000)})
    while True:
        frame.lazy().group_by("k").agg(polars.col("v").sum()).collect()


def parquet():
    import numpy
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": numpy.random.default_rng(1).random(2_000_000)}), "table.parquet")
    while True:
        pq.read_table("table.parquet", memory_map=True).column("a").to_numpy().sum()


def h5py_rows():
    import h5py
    import numpy

    with h5py.File("rows.h5", "w") as file:
        file.create_dataset("a", data=numpy.random.default_rng(1).random((500, 10_000)), chunks=(10, 10_000), compression="gzip")
    while True:
        with h5py.File("rows.h5") as file:
            for row in file["a"]:
                row.sum()


def zarr_rows():
    import numpy
    import zarr

    array = zarr.open("rows.zarr", mode="w", shape=(1000, 10_000), chunks=(100, 10_000), dtype="f8")
    array[:] = numpy.random.default_rng(1).random((1000, 10_000))
    while True:
        for first in range(0, 1000, 100):
            array[first : first + 100].sum()


def scipy_fft():
    import numpy
    import scipy.fft

    signal = numpy.random.default_rng(1).random(1 << 20)
    while True:
        scipy.fft.fft(signal)


def sklearn_forest():
    import numpy
    from sklearn.ensemble import RandomForestClassifier

    data = numpy.random.default_rng(1).random((5000, 20))
    while True:
        RandomForestClassifier(n_estimators=20, n_jobs=2).fit(data, data[:, 0] > 0.5)


def json_objects():
    import json

    data = [{"a": number, "b": str(number), "c": [number] * 5} for number in range(20_000)]
    while True:
        json.loads(json.dumps(data))


globals()[sys.argv[1]]()
