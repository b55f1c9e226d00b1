"""prefetch, release, residency, take, load: what they read, counted, and what they refuse."""

import mmap
import os

import numpy as np
import pytest
from conftest import PAGE, Cost, drop

import majorfault

ROW = 16 << 10


def plain(rows):
    path, shape = rows
    return np.memmap(path, "u4", "r", shape=shape)


def test_announced_rows_alone_are_read_and_nobody_waits_for_a_fault(rows, counted):
    array = plain(rows)
    wanted = np.random.default_rng(1).permutation(1024)[:64]

    with Cost() as cost:
        asked = majorfault.prefetch(array, wanted)
        found = array[wanted][:, 0]

    assert asked == 64 * ROW
    assert cost.read(64 * ROW)
    assert majorfault.residency(array).resident_bytes == 64 * ROW
    assert not cost.waited()
    assert found.tolist() == wanted.tolist()


def test_without_an_announcement_the_same_rows_cost_faults(rows, counted):
    """The control: what the test above shows is not so by itself."""
    array = plain(rows)
    majorfault.advise(array, "random")

    with Cost() as cost:
        array[np.arange(0, 1024, 16)].sum()

    assert cost.faults >= 64


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (7, [7]),
        (-1, [1023]),
        (slice(4, 10, 3), [4, 7]),
        (range(3), [0, 1, 2]),
        ([5, 2, 5], [2, 5]),
        (np.array([1, 3], "u1"), [1, 3]),
        (np.arange(1024) == 9, [9]),
        ([], []),
    ],
)
def test_rows_are_given_as_python_and_numpy_have_them(rows, given, numbers):
    array = plain(rows)

    asked = majorfault.prefetch(array, given)

    assert asked == ROW * len(numbers)
    assert majorfault.residency(array).total_bytes == 1024 * ROW


@pytest.mark.parametrize("wrap", [memoryview, lambda array: array._mmap, np.asarray, lambda array: [array], lambda array: {"a": array}])
def test_whatever_has_an_address_in_a_mapped_file_is_taken(rows, wrap):
    assert majorfault.prefetch(wrap(plain(rows))) == 1024 * ROW


def test_a_column_is_read_by_the_pages_that_hold_it(rows, counted):
    array = plain(rows)

    with Cost() as cost:
        majorfault.prefetch(array[:, 77])
        array[:, 77].sum()

    assert cost.read(1024 * PAGE) and not cost.waited()
    assert majorfault.residency(array).resident_bytes == 1024 * PAGE


def test_a_file_that_is_cached_as_a_whole_is_not_asked_for(rows):
    path, _ = rows
    array = plain(rows)
    majorfault.load(path)
    if majorfault.prefetch(array, [0]) > 0:
        pytest.skip("this kernel does not say what is cached (cachestat, Linux 6.5)")

    drop(path)

    assert majorfault.prefetch(array, [0]) == ROW


def test_memory_without_a_file_is_an_error():
    for memory in (np.zeros(1 << 20), bytearray(1 << 20), mmap.mmap(-1, 1 << 20), bytes(1 << 20)):
        for call in (majorfault.prefetch, majorfault.release, majorfault.residency, majorfault.file_of):
            with pytest.raises(majorfault.NotMapped, match="in no mapped file"):
                call(memory)


@pytest.mark.parametrize("row", [1024, -1025, 2**63 - 1, -(2**63)])
def test_a_row_that_is_not_there_is_an_index_error(rows, row):
    with pytest.raises(IndexError, match="not in an array of 1024 rows"):
        majorfault.prefetch(plain(rows), [row])


@pytest.mark.parametrize(
    ("rows_given", "error"),
    [
        (np.array([1.5]), majorfault.Invalid),
        (["a"], majorfault.Invalid),
        ([2**70], majorfault.Invalid),
        (np.zeros(3, bool), majorfault.Invalid),
        (object(), majorfault.Invalid),
        (np.array([2**64 - 1], "u8"), IndexError),
        ([None], majorfault.Invalid),
    ],
)
def test_what_are_no_rows_is_told(rows, rows_given, error):
    with pytest.raises(error):
        majorfault.prefetch(plain(rows), rows_given)


@pytest.mark.parametrize("array", [object(), 5, "text", None, np.array([object()]), np.float64(1.0), iter([])])
def test_what_has_no_address_is_told(array):
    with pytest.raises(majorfault.Invalid):
        majorfault.prefetch(array, [0])


def test_a_closed_map_is_an_error(rows):
    with open(rows[0], "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped.close()

    with pytest.raises(ValueError, match="closed"):
        majorfault.prefetch(mapped)


def test_an_array_without_rows_asks_for_nothing(rows):
    assert majorfault.prefetch(plain(rows)[5:5]) == 0
    assert majorfault.prefetch(np.empty((0, 3))) == 0


def resident(path):
    lines = open("/proc/self/smaps").read().split("\n")
    at = next(at for at, line in enumerate(lines) if line.endswith(str(path)))
    return next(int(line.split()[1]) << 10 for line in lines[at:] if line.startswith("Rss:"))


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_what_is_let_go_of_takes_no_memory_and_keeps_its_changes(rows, mode):
    path, shape = rows
    array = np.memmap(path, "u4", mode, shape=shape)
    if mode != "r":
        array[3] = 77
    before = int(array.sum(dtype="u8"))
    assert resident(path) == 1024 * ROW

    assert majorfault.release(array) == 1024 * ROW

    assert resident(path) <= ROW + PAGE
    assert int(array.sum(dtype="u8")) == before


def test_what_is_dropped_is_in_no_cache(rows):
    array = plain(rows)
    array.sum()

    majorfault.release(array, drop=True)

    assert majorfault.residency(array).resident_bytes == 0


def test_residency_counts_what_was_read(rows):
    array = plain(rows)
    majorfault.advise(array, "random")
    array[3], array[3][0], array[900][0]
    int(array[3].sum()), int(array[900].sum())

    found = majorfault.residency(array)

    assert found.total_bytes == 1024 * ROW
    assert 0 < found.resident_bytes < found.total_bytes
    assert found.share == found.resident_bytes / found.total_bytes


@pytest.mark.parametrize("method", ["auto", "uring", "uring:direct=off", "pread", "mmap", "direct"])
def test_taken_rows_are_those_of_the_file_by_every_method(rows, method):
    path, shape = rows
    wanted = np.random.default_rng(2).integers(-1024, 1024, 300)
    expected = (wanted % 1024).tolist()
    try:
        found = majorfault.take(path, wanted, dtype="u4", row_shape=(4096,), method=method)
    except majorfault.Missing as missing:
        pytest.skip(str(missing))

    assert found.shape == (300, 4096)
    assert found[:, 0].tolist() == expected
    assert found[:, 4095].tolist() == expected
    out = np.empty_like(found)
    assert majorfault.take(plain(rows)[100:], [3], method=method)[0, 0] == 103
    assert majorfault.take(path, wanted, out, dtype="u4", row_shape=(4096,), method=method) is out
    assert (out == found).all()


def test_rows_longer_than_one_read_are_taken_whole(folder):
    path = folder / "long"
    content = np.arange(3 * (5 << 18) + 3, dtype="u4")
    content.tofile(path)

    found = majorfault.take(path, [2, 0], dtype="u4", row_shape=(5 << 18,), offset=12)

    assert (found[0] == content[3 + 2 * (5 << 18) :]).all()
    assert (found[1] == content[3 : 3 + (5 << 18)]).all()


def test_taking_reads_past_the_page_cache(rows, counted):
    array = plain(rows)
    try:
        majorfault.take(array, [5, 6], method="uring")
    except majorfault.Missing as missing:
        pytest.skip(str(missing))

    assert majorfault.residency(array).resident_bytes == 0


def test_a_file_that_was_replaced_is_taken_from_anew(rows):
    path, shape = rows
    assert majorfault.take(path, [3], dtype="u4", row_shape=(4096,))[0, 0] == 3
    other = path.with_suffix(".new")
    np.full(shape, 9, "u4").tofile(other)
    os.rename(other, path)

    assert majorfault.take(path, [3], dtype="u4", row_shape=(4096,))[0, 0] == 9


def test_wrong_shapes_and_rows_of_take_are_told(rows):
    path, _ = rows
    array = plain(rows)
    with pytest.raises(majorfault.Invalid, match="out is float64"):
        majorfault.take(array, [1], np.empty((1, 4096)))
    with pytest.raises(majorfault.Invalid, match="out is uint32 of"):
        majorfault.take(array, [1], np.empty((2, 4096), "u4"))
    with pytest.raises(majorfault.Invalid, match="rows follow each other"):
        majorfault.take(array[:, 5], [1])
    with pytest.raises(majorfault.Invalid, match="neither may be negative"):
        majorfault.take(path, range(1 << 40), dtype="u4", offset=-(2**60))
    with pytest.raises(IndexError, match="row 1024"):
        majorfault.take(array, [1024])
    with pytest.raises(majorfault.Invalid, match='no access method "nothing"|there is no method'):
        majorfault.take(path, [1], dtype="u4", row_shape=(4096,), method="nothing")
    readonly = np.empty((1, 4096), "u4")
    readonly.flags.writeable = False
    with pytest.raises(majorfault.Invalid, match="writable"):
        majorfault.take(array, [1], readonly)


def test_a_loaded_file_is_cached_and_its_progress_is_told(rows):
    path, _ = rows
    told = []

    loaded = majorfault.load(path, path, progress=lambda done, total: told.append((done, total)))

    assert loaded == (2 * 1024 * ROW, 0)
    assert told == [(1024 * ROW, 2 * 1024 * ROW), (2 * 1024 * ROW, 2 * 1024 * ROW)]
    assert majorfault.residency(plain(rows)).share == 1.0


def test_loading_keeps_its_budget(rows):
    path, _ = rows

    assert majorfault.load(path, path, budget=20 * ROW) == (20 * ROW, 2028 * ROW)
    with pytest.raises(OSError):
        majorfault.load("/nowhere")


def test_an_error_in_the_progress_ends_the_loading(rows):
    def fails(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        majorfault.load(rows[0], progress=fails)


def test_what_a_file_is_called_is_told_only_while_it_is_that_file(rows):
    path, _ = rows
    array = plain(rows)
    assert majorfault.file_of(array[3]) == (str(path), 3 * ROW)

    os.unlink(path)

    assert majorfault.file_of(array[3]) == (None, 3 * ROW)
    assert majorfault.prefetch(array, [1]) == ROW


def test_advice_that_there_is_not_is_told(rows):
    with pytest.raises(majorfault.Invalid, match="there are normal, random"):
        majorfault.advise(plain(rows), "faster")


def test_a_cgroups_free_memory_bounds_what_is_announced_at_once(rows, monkeypatch):
    import majorfault._core as core

    assert 0 < core.free_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
