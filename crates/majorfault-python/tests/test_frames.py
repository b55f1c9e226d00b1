"""Arrays of other libraries: rows announced are the rows read. What is not installed is skipped."""

import ctypes
import itertools
import pickle

import numpy as np
import pytest
from conftest import Cost, drop

import majorfault

ROWS = 1024
WANTED = np.random.default_rng(5).permutation(ROWS)[:32]


def opened(rows, **given):
    path, shape = rows
    return majorfault.memmap(path, "u4", "r", shape=shape, **given)


def resident(path, size):
    return majorfault.residency(np.memmap(path, "u1", "r", shape=(size,))).resident_bytes


# pyarrow


@pytest.fixture
def table(folder):
    """An Arrow IPC file of four batches: fixed lists, texts, numbers, with empty values."""
    pa = pytest.importorskip("pyarrow")
    path = folder / "table.arrow"
    values = pa.array(np.repeat(np.arange(ROWS, dtype="u4"), 4096))
    lists = pa.FixedSizeListArray.from_arrays(values, 4096)
    texts = pa.array([None if row % 7 == 0 else str(row) * 500 for row in range(ROWS)])
    ragged = pa.array([[row] * (row % 50) for row in range(ROWS)], pa.list_(pa.int64()))
    numbers = pa.array(np.arange(ROWS))
    whole = pa.table({"lists": lists, "texts": texts, "ragged": ragged, "numbers": numbers})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        for begin in range(0, ROWS, ROWS // 4):
            writer.write_table(whole.slice(begin, ROWS // 4))
    opened = pa.memory_map(str(path))
    mapped = pa.ipc.open_file(opened).read_all()
    opened.seek(0)
    cool(opened.read_buffer())
    return mapped, whole, path


def cool(array):
    """Nothing cached, and no read-ahead around a stray fault: a window of it may be as large as these files."""
    majorfault.advise(array, "random")
    # Pages that the kernel is still reading ahead are not dropped.
    for _ in range(1000):
        majorfault.release(array, drop=True)
        if majorfault.residency(array).resident_bytes == 0:
            return
    raise AssertionError("the file stays cached")


def test_rows_of_a_table_wait_for_no_fault(table, counted):
    pytest.importorskip("pyarrow")
    import majorfault.arrow

    mapped, whole, path = table

    with Cost() as cost:
        majorfault.prefetch(mapped, WANTED)
        found = [mapped.slice(int(row), 1) for row in WANTED]
        found = [(one["lists"][0][7].as_py(), one["texts"][0].as_py(), one["ragged"][0].as_py()) for one in found]

    assert found == [(row, None if row % 7 == 0 else str(row) * 500, [row] * (row % 50)) for row in WANTED.tolist()]
    # The texts' and lists' offsets are read while announcing; 4 batches have 3 of them.
    assert cost.faults <= 16 + Cost.STRAY_FAULTS
    assert resident(path, path.stat().st_size) < path.stat().st_size // 4
    assert majorfault.arrow.take(mapped, WANTED).equals(whole.take(WANTED))


KINDS = {
    "numbers": (lambda row: row * 3, "int64"),
    "texts": (lambda row: None if row % 7 == 0 else str(row) * (row % 90), "string"),
    "bytes": (lambda row: bytes([row % 256]) * 300, "large_binary"),
    "bits": (lambda row: None if row % 5 == 0 else row % 3 == 0, "bool_"),
    "lists": (lambda row: [row] * (row % 40), ("list_", "int32")),
    "texts_of_lists": (lambda row: ["a" * row] * (row % 4), ("list_", "string")),
    "fixed": (lambda row: [row, row + 1, row + 2], ("list_", "int16", 3)),
    "words": (lambda row: ["x", "y", "zz"][row % 3], ("dictionary", "int32", "string")),
    "fields": (lambda row: None if row % 11 == 0 else {"path": str(row), "place": row / 2}, {"path": "string", "place": "float64"}),
    "nothing": (lambda row: None, "null"),
}


@pytest.fixture(params=["file", "sliced", "alone"])
def kinds(request, folder):
    """Every kind of column in chunks of unlike lengths, one of them empty; a slice of such a table; one whose chunks are in memory of their own."""
    pa = pytest.importorskip("pyarrow")

    def kind(given):
        if isinstance(given, dict):
            return pa.struct({name: kind(one) for name, one in given.items()})
        if isinstance(given, tuple):
            return getattr(pa, given[0])(*[kind(one) if isinstance(one, str) else one for one in given[1:]])
        return getattr(pa, given)()

    schema = pa.schema({name: kind(given) for name, (_, given) in KINDS.items()})
    path = folder / "kinds.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for begin, end in ((0, 100), (100, 100), (100, 101), (101, 600)):
            columns = [pa.array([make(row) for row in range(begin, end)], schema.field(name).type) for name, (make, _) in KINDS.items()]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    mapped = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    return {"file": mapped, "sliced": mapped.slice(37, 500), "alone": pa.concat_tables([mapped.slice(3, 90), pa.table(mapped.slice(5, 70).to_pydict(), schema)])}[request.param]


def bytes_of(found):
    """The addresses of all bytes of parts that are in the mapped file."""
    from majorfault._parts import joined

    addresses = set()
    for part in joined(found):
        begin = np.frombuffer(part.buffer, "u1").ctypes.data
        addresses.update(address for at, length in zip(part.begins, part.lengths, strict=True) for address in range(begin + at, begin + at + length))
    return addresses


@pytest.mark.parametrize("name", KINDS)
def test_columns_that_were_looked_up_have_the_bytes_that_chunks_have(kinds, name):
    """The first call takes each chunk apart, later ones compute where the rows are."""
    pytest.importorskip("pyarrow")
    from majorfault._columns import Column, Unknown
    from majorfault.arrow import _chunks

    column = kinds[name]
    try:
        known = Column(column)
    except Unknown:
        # Chunks of memory that are not cut from one file, lists of lists, and what has no width are left to `_chunks`.
        assert column.num_chunks == 2 or name in ("texts_of_lists", "nothing")
        return

    for rows in ([0], [len(kinds) - 1, 0, 64, 63, 62, 64], list(range(len(kinds)))):
        assert bytes_of(known.parts(np.array(rows))) == bytes_of(_chunks(column.chunks, rows, len(column)))


def test_fields_of_a_slice_are_announced_where_they_are(kinds):
    """A field of a slice begins where the slice does: it was moved twice, which announced other rows, or none by an IndexError."""
    pa = pytest.importorskip("pyarrow")
    from majorfault.arrow import _chunks

    column = kinds["fields"]
    for row in (0, 62, 63, len(kinds) - 1):
        places = pa.chunked_array([chunk.field("place") for chunk in column.chunks])

        assert bytes_of(_chunks(places.chunks, [row], len(column))) <= bytes_of(_chunks(column.chunks, [row], len(column)))
        if column.num_chunks > 2:
            begin = min(bytes_of([part for part in _chunks(places.chunks, [row], len(column)) if part.lengths[0] == 8]))
            assert np.ctypeslib.as_array((ctypes.c_double * 1).from_address(begin))[0] == (column[row]["place"].as_py() or 0)


def test_a_table_is_looked_up_at_its_second_use_and_forgotten_with_it(kinds):
    import gc

    from majorfault import _columns

    wanted = np.array([3, 140, 0])
    first, second, third = (majorfault.prefetch(kinds, rows) for rows in (wanted, wanted, wanted - len(kinds)))
    key = id(kinds)

    assert first == second == third
    assert len(_columns._met[key][1].known) == len(KINDS)
    with pytest.raises(IndexError):
        majorfault.prefetch(kinds, [len(kinds)])

    copy = kinds.slice(0)
    key = id(copy)
    majorfault.prefetch(copy, wanted)
    assert key in _columns._met
    del copy
    gc.collect()
    assert key not in _columns._met


@pytest.mark.parametrize("taken", ["table", "column", "batch", "array"])
def test_rows_taken_of_several_chunks_read_no_other_rows(table, counted, taken):
    """Arrow makes one chunk of all before it takes lists or texts, which reads the whole file."""
    pa = pytest.importorskip("pyarrow")
    import majorfault.arrow

    mapped, whole, path = table
    # Orders, twice the same, from the end, one chunk alone, none.
    wanted = {"table": WANTED, "column": [*WANTED.tolist(), 5, 5, -1], "batch": [3, 1], "array": []}[taken]
    source = {"table": mapped, "column": mapped["lists"], "batch": mapped.to_batches()[0], "array": mapped["texts"].chunk(1)}[taken]
    rows = np.asarray(wanted, np.int64)

    with Cost() as cost:
        found = majorfault.arrow.take(source, wanted)

    assert cost.faults <= 16 + Cost.STRAY_FAULTS
    assert resident(path, path.stat().st_size) < path.stat().st_size // 4
    expected = {"table": whole, "column": whole["lists"], "batch": whole, "array": whole["texts"]}[taken].take(np.where(rows < 0, rows + ROWS, rows))
    assert found.to_pylist() == expected.to_pylist()
    assert type(found) is type(source) and found.equals(source.take(pa.array(rows % len(source))))


def test_kinds_that_have_dictionaries_and_fields_are_taken_of_several_chunks():
    pa = pytest.importorskip("pyarrow")
    from majorfault.arrow import gathered

    texts = pa.chunked_array([pa.array(["a", "b", None]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()])
    fields = pa.chunked_array([pa.array([{"x": 1, "y": "q"}, None, {"x": 3, "y": None}]), pa.array([{"x": 4, "y": "r"}, {"x": 5, "y": "s"}])])
    for column in (texts, fields, pa.chunked_array([[1, 2], [3]]), pa.chunked_array([], pa.string())):
        rows = np.array([4, 1, 0, 4]) % len(column) if len(column) else np.array([], np.int64)

        assert gathered(column, rows).to_pylist() == column.take(pa.array(rows)).to_pylist()
        assert gathered(column, rows).type == column.type


@pytest.mark.parametrize("column", ["lists", "texts", "ragged", "numbers"])
@pytest.mark.parametrize("rows", [None, [5], [0, 1023], slice(200, 300), WANTED])
def test_every_kind_of_column_is_announced_with_its_rows(table, column, rows):
    mapped, _, path = table

    asked = majorfault.prefetch(mapped[column], rows)

    assert asked > 0
    assert majorfault.prefetch(mapped[column].chunk(2), [3]) > 0
    assert majorfault.prefetch(mapped.slice(100, 50)[column], [49]) > 0
    with pytest.raises(IndexError):
        majorfault.prefetch(mapped[column], [ROWS])


def test_announced_parts_of_a_table_hold_the_rows(table):
    """Each wanted row's bytes are in an announced range, by the addresses of its own buffers."""
    pa = pytest.importorskip("pyarrow")
    from majorfault import _core
    from majorfault._parts import parts

    whole, _, _ = table
    for column, begin in itertools.product(("lists", "texts", "numbers"), (0, 77)):
        mapped = whole.slice(begin)
        for row in (0, 300, 1023 - begin):
            one = mapped[column].slice(row, 1).chunk(0)
            values = one.flatten() if pa.types.is_fixed_size_list(one.type) else one
            ranges = []
            for part in parts(mapped[column], [row]):
                base = np.frombuffer(memoryview(part.buffer).cast("B"), "u1").__array_interface__["data"][0]
                if part.begins is not None:
                    ranges += [(base + begin, base + begin + length) for begin, length in zip(part.begins, part.lengths)]
                else:
                    ranges += [(base + begin, base + end) for begin, end in _core.extents(part.buffer, part.rows)]
            data = values.buffers()[-1]
            width = 4 if column == "lists" else 8
            if column == "texts":
                offsets = np.frombuffer(one.buffers()[1], "i4")[one.offset : one.offset + 2]
                wanted = (data.address + int(offsets[0]), data.address + int(offsets[1]))
            else:
                wanted = (data.address + values.offset * width, data.address + (values.offset + len(values)) * width)
            assert wanted[0] == wanted[1] or any(begin <= wanted[0] and wanted[1] <= end for begin, end in ranges)


def test_arrow_data_in_memory_is_an_error():
    pa = pytest.importorskip("pyarrow")

    with pytest.raises(majorfault.NotMapped):
        majorfault.prefetch(pa.table({"a": np.arange(100000)}), [1])


# datasets


@pytest.fixture
def dataset(table):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset(datasets.table.MemoryMappedTable.from_file(str(stream(table))))


def stream(table):
    """The format of the library's cache: a stream."""
    import pyarrow as pa

    _, whole, path = table
    cache = path.with_name("cache.arrow")
    with pa.OSFile(str(cache), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=100)
    drop(cache)
    return cache


@pytest.mark.parametrize("change", [lambda ds: ds, lambda ds: ds.shuffle(seed=1), lambda ds: ds.select(range(10, 900)), lambda ds: ds.with_format("numpy")])
def test_rows_of_a_data_set_wait_for_no_fault(dataset, change, counted):
    import majorfault.datasets

    data = change(dataset)
    wanted = WANTED[WANTED < len(data)].tolist()
    expected = data[wanted]["numbers"]
    majorfault.release(data, drop=True)

    with Cost() as cost:
        found = list(majorfault.datasets.batches(data, [wanted[:16], wanted[16:]]))

    assert list(found[0]["numbers"]) + list(found[1]["numbers"]) == list(expected)
    assert cost.faults <= 60 + Cost.STRAY_FAULTS


@pytest.mark.parametrize("change", [lambda ds: ds.shuffle(seed=1), lambda ds: ds.select(range(500, 900, 3))])
def test_rows_of_a_shuffled_data_set_are_announced_where_they_are(dataset, change):
    from majorfault._parts import parts

    data = change(dataset)
    row = data[77]["numbers"]

    def places(of, number):
        return bytes_of(parts(of, [number]))

    assert row != 77 and len(places(data, 77)) >= 8 and places(data, 77) == places(dataset, row)
    assert places(data.with_format("numpy", columns=["numbers"]), 77) == places(dataset.select_columns(["numbers"]), row)


# torch


def test_tensors_of_every_type_in_a_mapped_file_are_announced(rows):
    torch = pytest.importorskip("torch")
    path, shape = rows
    whole = torch.from_file(str(path), shared=True, size=ROWS * 4096, dtype=torch.int32).reshape(shape)

    assert majorfault.prefetch(whole, WANTED) == 32 * 16384
    assert majorfault.prefetch(whole[:, 5]) == ROWS * 4096
    assert majorfault.prefetch(whole.view(torch.bfloat16), torch.tensor([1, 2])) == 2 * 16384
    assert majorfault.file_of(whole[3]) == (str(path), 3 * 16384)
    with pytest.raises(majorfault.NotMapped):
        majorfault.prefetch(torch.zeros(1 << 20))
    with pytest.raises(IndexError):
        majorfault.prefetch(whole, [ROWS])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_batches_ahead_waits_for_no_fault(rows, counted, workers):
    torch = pytest.importorskip("torch")
    from majorfault.torch import AheadSampler

    array = np.memmap(rows[0], "u4", "r", shape=rows[1])

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, row):
            return int(array[row].sum(dtype="u8"))

        def __prefetch__(self, wanted):
            return majorfault.prefetch(array, wanted)

    data = torch.utils.data.Subset(Rows(), range(100, 900))
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 16, False)
    loader = torch.utils.data.DataLoader(data, batch_sampler=AheadSampler(sampler, data, 12), num_workers=workers)

    with Cost() as cost:
        found = torch.cat(list(loader))

    assert sorted(found.tolist()) == [row * 4096 for row in range(100, 900)]
    # A worker's faults are counted where it ends; torch's own code may be read, too.
    assert cost.faults <= 100


# polars


def test_columns_that_polars_maps_are_announced(folder):
    polars = pytest.importorskip("polars")
    path = folder / "frame.arrow"
    polars.DataFrame({"a": np.arange(1 << 20), "b": np.arange(1 << 20) * 0.5}).write_ipc(path, compression="uncompressed")
    frame = polars.scan_ipc(path).collect()
    try:
        asked = majorfault.prefetch(frame, [5, 100_000])
    except majorfault.NotMapped:
        pytest.skip(f"polars {polars.__version__} copies IPC files into memory")

    assert asked == 4 * 4096


# h5py


@pytest.fixture
def store(folder):
    h5py = pytest.importorskip("h5py")
    path = folder / "store.h5"
    with h5py.File(path, "w") as file:
        content = np.repeat(np.arange(ROWS, dtype="u4"), 1024).reshape(ROWS, 1024)
        file.create_dataset("plain", data=content)
        file.create_dataset("chunks", data=content, chunks=(4, 512), compression="gzip")
        file.create_dataset("line", data=np.arange(1 << 20), chunks=(4096,))
        file.create_dataset("empty", shape=(0, 3), maxshape=(None, 3), chunks=(4, 3))
    drop(path)
    return h5py.File(path, "r"), path


@pytest.mark.parametrize(("name", "length"), [("plain", None), ("chunks", None), ("line", 30 * 32768)])
def test_chunks_of_hdf5_that_hold_the_rows_are_read(store, counted, name, length):
    import majorfault.h5py

    file, _ = store
    data = file[name]
    wanted = np.sort(WANTED) * (1 if name != "line" else 1000)

    asked = majorfault.h5py.prefetch(data, wanted)
    with Cost() as cost:
        found = data[wanted]

    assert (found[:, 0] if found.ndim == 2 else found).tolist() == wanted.tolist()
    assert asked == (length or asked) and 0 < asked < 3 << 20
    # HDF5 reads its index, too, with the kernel's read-ahead.
    assert cost.bytes <= 2 << 20
    assert majorfault.h5py.prefetch(file["empty"]) == 0
    with pytest.raises(IndexError):
        majorfault.h5py.prefetch(data, [len(data)])
    with pytest.raises(majorfault.Invalid, match="majorfault.h5py.prefetch"):
        majorfault.prefetch(data)


def test_rows_of_contiguous_hdf5_are_announced_as_hdf5_reads_them(store, counted):
    """HDF5 reads 64 KiB for a row of 4 KiB (its sieve buffer). Only the row was announced, so that the read waited for the rest."""
    import majorfault.h5py

    file, path = store
    data = file["plain"]
    # Away from each other, and the last ones: a read ends with the data set.
    wanted = [*range(0, ROWS - 32, 32), ROWS - 2]
    _ = data[0], drop(path)

    asked = majorfault.h5py.prefetch(data, wanted)
    with Cost() as cost:
        found = data[wanted]

    assert found[:, 0].tolist() == wanted
    assert asked == (len(wanted) - 1) * (64 << 10) + 2 * 4096
    assert cost.read(0)


def test_chunks_are_looked_up_once_while_a_file_is_only_read(store, folder):
    h5py = pytest.importorskip("h5py")
    import majorfault.h5py

    file, path = store
    majorfault.h5py._kept.clear()
    for name, few, many in (("chunks", [7, 900], range(0, ROWS, 4)), ("line", [70_000, 9], range(0, 1 << 20, 4096))):
        alone = [sorted(majorfault.h5py.places(file[name], [row])) for row in few]
        together = sorted(majorfault.h5py.places(file[name], few))
        every = sorted(majorfault.h5py.places(file[name], many))

        assert together == sorted(sum(alone, []))
        assert every == sorted(majorfault.h5py.places(file[name]))
        assert set(together) < set(every)
    assert len(majorfault.h5py._kept) == 2

    # Another file of this name, whose data set has other places; one that grows.
    file.close()
    path.unlink()
    with h5py.File(path, "w") as written:
        written.create_dataset("before", data=np.arange(10_000))
        written.create_dataset("line", data=np.arange(1 << 20), chunks=(4096,), maxshape=(None,))
    with h5py.File(path) as again, open(path, "rb") as raw:
        begin, length = next(majorfault.h5py.places(again["line"], [8192]))
        raw.seek(begin)
        assert np.frombuffer(raw.read(length), "i8")[0] == 8192
    with h5py.File(path, "r+") as growing:
        line = growing["line"]
        assert len(list(majorfault.h5py.places(line))) == 256
        line.resize((1 << 20) + 5000, 0)
        line[1 << 20 :] = 7
        assert len(list(majorfault.h5py.places(line))) == 258


def test_places_of_chunks_are_those_of_their_bytes(store):
    import zlib

    import majorfault.h5py

    file, path = store
    with open(path, "rb") as raw:
        begin, length = next(iter(sorted(majorfault.h5py.places(file["chunks"], [0]))))
        raw.seek(begin)
        assert np.frombuffer(zlib.decompress(raw.read(length)), "u4")[0] == 0
        raw.seek(next(majorfault.h5py.places(file["plain"], [77]))[0])
        assert np.frombuffer(raw.read(4), "u4")[0] == 77


def test_rows_of_a_backed_anndata_are_announced(folder):
    anndata = pytest.importorskip("anndata")
    sparse = pytest.importorskip("scipy.sparse")
    import majorfault.h5py

    path = folder / "cells.h5ad"
    matrix = sparse.random(ROWS, 500, 0.2, "csr", "f4", np.random.default_rng(6))
    anndata.AnnData(matrix).write_h5ad(path)
    backed = anndata.read_h5ad(path, backed="r")

    asked = majorfault.h5py.prefetch_sparse(backed.file["X"], [3, 900])

    assert 0 < asked < 4 << 20
    assert (backed[[3, 900]].X.toarray() == matrix[[3, 900]].toarray()).all()


@pytest.mark.parametrize("chunks", [None, 1000])
@pytest.mark.parametrize("alone", [0, 1 << 60])
def test_places_of_sparse_rows_are_those_of_their_items(folder, monkeypatch, chunks, alone):
    """All items of the rows were listed and sorted, which took longer than reading them."""
    h5py = pytest.importorskip("h5py")
    sparse = pytest.importorskip("scipy.sparse")
    import majorfault.h5py

    monkeypatch.setattr(majorfault.h5py, "READ_ALONE", alone)
    path = folder / "sparse.h5"
    matrix = sparse.random(ROWS, 300, 0.2, "csr", "f4", np.random.default_rng(6))
    matrix = sparse.vstack([matrix, sparse.csr_matrix((2, 300), dtype="f4"), matrix[:3]]).tocsr()
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(matrix, name), chunks=(chunks,) if chunks and name != "indptr" else None)

    with h5py.File(path) as file:
        for rows in ([5], [ROWS, ROWS + 1], [ROWS + 4, 0, 5, 6, -1], []):
            items = np.concatenate([np.arange(*matrix.indptr[row : row + 2]) for row in np.array(rows, int) % (ROWS + 5)] or [np.arange(0)])
            places = sorted(majorfault.h5py.places_sparse(file["X"], rows))

            assert places == sorted(place for name in ("data", "indices") for place in majorfault.h5py.places(file["X"][name], items))
            assert bool(places) == bool(len(items))


# safetensors


@pytest.fixture
def model(folder):
    numpy_file = pytest.importorskip("safetensors.numpy")
    path = folder / "model.safetensors"
    numpy_file.save_file({f"t{number:02}": np.full((512, 512), number, "f4") for number in range(16)}, path)
    drop(path)
    return path


def test_tensors_come_in_the_files_order_with_the_next_ones_ahead(model, counted):
    safetensors = pytest.importorskip("safetensors")
    import majorfault.safetensors

    found = {}
    size = 1 << 20
    for name in majorfault.safetensors.names_ahead(model, budget=3 * size):
        if not found:
            assert resident(model, model.stat().st_size) <= 4 * size
        with safetensors.safe_open(model, "np") as file:
            found[name] = file.get_tensor(name)

    assert list(found) == [f"t{number:02}" for number in range(16)]
    assert all((tensor == int(name[1:])).all() for name, tensor in found.items())
    assert majorfault.safetensors.prefetch(model, ["t03"]) == size
    with pytest.raises(majorfault.Invalid, match="no tensor"):
        list(majorfault.safetensors.names_ahead(model, ["t99"]))


@pytest.mark.parametrize("is_tight", [True, False])
def test_tensors_that_were_used_give_way_where_memory_is_tight(model, monkeypatch, is_tight):
    """What was read ahead was evicted before its turn, and read twice: a fourth more than the file where it is kept within 1.2 times of its size."""
    safetensors = pytest.importorskip("safetensors")
    import majorfault._files as files
    import majorfault.safetensors

    size, told, free, announced, ahead = 1 << 20, [], [(31 if is_tight else 33) << 20], [], []
    cool, prefetch_file = files.cool, files.prefetch_file

    monkeypatch.setattr(files, "LOOK", 4 * size)
    monkeypatch.setattr(files, "cool", lambda file, extents: told.append((extents, cool(file, extents))))
    monkeypatch.setattr(files, "prefetch_file", lambda file, extents: announced.append(prefetch_file(file, extents)))
    monkeypatch.setattr(majorfault._native.core, "free_bytes", lambda: free[-1])

    with safetensors.safe_open(model, "np") as file:
        for turn, name in enumerate(majorfault.safetensors.names_ahead(model)):
            file.get_tensor(name)
            ahead.append(len(announced) - turn)
            free.append(free[-1] if turn < 4 else 8 << 20)

    places = list(majorfault.safetensors.places(model).values())
    assert told == ([(places[at : at + 4], 4 * size) for at in (0, 4, 8, 12)] if is_tight else [])
    assert ahead[:4] == [7 if is_tight else 8] * 4 and ahead[13:15] == [2, 2]


def test_a_file_that_is_not_mapped_has_nothing_to_give_up(folder):
    from majorfault._files import cool

    path = folder / "a name with blanks"
    path.write_bytes(bytes(100_000))
    with open(path, "rb") as file:
        assert cool(file.fileno(), [(0, 100_000)]) == 0
        mapped = np.memmap(path, "u1", "r", offset=8192, shape=(50_000,))
        assert cool(file.fileno(), [(0, 9000), (58_000, 10_000)]) == 9000 - 8192 + (8192 + 50_000 + 4095) // 4096 * 4096 - 58_000
        assert mapped[0] == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 8, b"\xff" * 64, b"\x10" + b"\0" * 7 + b"{}", b"\x02" + b"\0" * 7 + b"[]", b"\x22" + b"\0" * 7 + b'{"a": {"data_offsets": [0, 99999]}}'],
)
def test_what_is_no_safetensors_file_is_told(folder, content):
    import majorfault.safetensors

    path = folder / "bad"
    path.write_bytes(content)
    try:
        assert majorfault.safetensors.places(path) == {}
        assert content == b"\0" * 8 or b"{}" in content
    except majorfault.Invalid:
        pass


# zarr


def test_chunks_of_zarr_and_ranges_of_their_files(folder):
    zarr = pytest.importorskip("zarr")
    import majorfault.zarr

    array = zarr.create_array(folder / "z", shape=(100, 64), chunks=(10, 32), dtype="u4", compressors=None, filters=None)
    array[:] = np.arange(6400, dtype="u4").reshape(100, 64)

    assert majorfault.zarr.prefetch(array, [5, 7, 95]) == 4 * 10 * 32 * 4
    assert majorfault.zarr.prefetch(array) == 6400 * 4
    ranges = majorfault.zarr.Ranges(folder / "z")
    file = next(path for path in (folder / "z").rglob("c/0/0"))
    name = str(file.relative_to(folder / "z"))
    assert ranges.get_ranges(name, starts=[0, 100, 7], lengths=[4, 0, 9]) == [b"\0\0\0\0", b"", file.read_bytes()[7:16]]
    assert ranges.get_range(name, start=4, end=8) == b"\1\0\0\0"
    with pytest.raises(ValueError):
        ranges.get_range(name, start=5000, length=5000)
    with pytest.raises(ValueError):
        ranges.get_range("../../etc/passwd", start=0, length=1)


# What takes numpy's memmap takes ours.


def test_joblib_hands_a_map_on_by_its_path(rows):
    joblib = pytest.importorskip("joblib")
    array = opened(rows)

    found = joblib.Parallel(n_jobs=2)(joblib.delayed(described)(part) for part in (array, array[100:200]))

    assert found[0][0] == 1024 and found[1][0] == 100
    assert all("memmap" in kind for _, kind, _ in found)
    assert [first for _, _, first in found] == [0, 100]
    assert joblib.hash(array[5:7], coerce_mmap=True) == joblib.hash(np.asarray(array[5:7]))


def described(array):
    return len(array), type(array).__name__, int(array[0, 0])


def test_dask_and_xarray_compute_on_a_map(rows):
    da = pytest.importorskip("dask.array")
    array = opened(rows)

    lazy = da.from_array(array, chunks=(100, 4096))
    assert lazy[:, 7].sum().compute() == 1023 * 512
    assert lazy[[5, 900]][:, 0].compute(scheduler="processes").tolist() == [5, 900]
    xarray = pytest.importorskip("xarray")
    data = xarray.DataArray(array, dims=("row", "column"))
    assert int(data.isel(row=[3, 4], column=0).sum()) == 7
    assert data.mean("column").values[9] == 9.0


def test_scikit_learn_fits_a_map(rows):
    cluster = pytest.importorskip("sklearn.cluster")
    decomposition = pytest.importorskip("sklearn.decomposition")
    array = majorfault.memmap(rows[0], "f4", "r", shape=(1024, 4096))
    numbers = np.abs(np.nan_to_num(array)) + np.arange(4096)

    assert decomposition.IncrementalPCA(2, batch_size=100).fit(opened(rows)[:300, :9]).n_samples_seen_ == 300
    assert cluster.MiniBatchKMeans(3, n_init=1, random_state=1).fit(numbers[:, :5]).cluster_centers_.shape == (3, 5)


def test_a_pickle_of_another_process_is_the_same_map(rows):
    import multiprocessing

    array = opened(rows)[10:20]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(described, (pickle.loads(pickle.dumps(array)),)) == (10, "memmap", 10)
