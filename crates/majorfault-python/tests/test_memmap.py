"""majorfault.memmap: it is numpy's, knows what an index reads, pickles by path, and tells of truncation."""

import atexit
import copy
import gc
import os
import pickle
import threading

import numpy as np
import pytest
from conftest import PAGE, Cost, drop, run
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import majorfault

ROW = 16 << 10


def opened(rows, mode="r", policy="index"):
    path, shape = rows
    return majorfault.memmap(path, "u4", mode, shape=shape, policy=policy)


def test_it_is_numpys_memmap(rows):
    array = opened(rows)

    assert isinstance(array, np.memmap)
    assert (array.filename, array.offset, array.mode) == (rows[0], 0, "r")
    assert type(array[3]) is majorfault.memmap and type(array[[3]]) is np.ndarray
    assert type(array + 1) is np.ndarray and type(array.sum()) is np.uint64
    assert array.is_guarded


@pytest.mark.parametrize(
    ("index", "pages"),
    [
        ((slice(None), 77), 1024),
        ([5, 900, 5], 8),
        ((np.array([5, 900]), slice(0, 10)), 2),
        (slice(0, 1024, 50), 21 * 4),
        ((np.array([1, 2, 3]), np.array([0, 1024, 5])), 3),
        ((Ellipsis, np.array([0, 4095])), 2048),
        (np.arange(1024) % 512 == 1, 8),
        ((slice(None, None, -256), slice(1024, 1030)), 4),
    ],
)
def test_an_index_reads_its_pages_alone_and_waits_for_no_fault(rows, counted, index, pages):
    array = opened(rows)

    with Cost() as cost:
        found = np.array(array[index])

    assert cost.read(pages * PAGE)
    assert majorfault.residency(array).resident_bytes == pages * PAGE
    assert not cost.waited()
    assert (found == np.memmap(rows[0], "u4", "r", shape=rows[1])[index]).all()


def test_an_iteration_waits_for_no_fault(rows, counted):
    array = opened(rows)
    # Or the kernel's own read-ahead would do.
    majorfault.advise(array, "random")

    with Cost() as cost:
        found = [int(row[0]) for row in array]

    assert found == list(range(1024))
    assert not cost.waited()
    assert cost.read(1024 * ROW)
    assert majorfault.residency(array).resident_bytes == 1024 * ROW


def test_many_rows_are_gathered_in_turns(rows, counted):
    array = opened(rows)
    wanted = np.random.default_rng(3).integers(-1024, 1024, 5000)

    with Cost() as cost:
        found = array[wanted]

    assert found[:, 7].tolist() == (wanted % 1024).tolist()
    assert not cost.waited()
    assert cost.bytes <= 1024 * ROW + Cost.STRAY_BYTES


def test_without_a_policy_nothing_is_announced(rows, monkeypatch):
    array = opened(rows, policy=None)
    monkeypatch.setattr(majorfault.numpy, "prefetch", None)

    assert array[[5, 6]][:, 0].tolist() == [5, 6]
    assert [int(row[0]) for row in array][:3] == [0, 1, 2]


def test_a_policy_of_the_library_sees_rows_that_are_asked_for(folder, counted):
    path = folder / "strided"
    np.zeros((256, 65536), "u1").tofile(path)
    drop(path)
    array = majorfault.memmap(path, "u1", "r", shape=(256, 65536), policy="strided:stride=64k,rows=16")

    faults = 0
    for row in range(200):
        with Cost() as cost:
            int(array[row, 5])
        faults += cost.faults if row >= 4 else 0

    assert faults <= Cost.STRAY_FAULTS
    assert majorfault.residency(array).resident_bytes < 256 * 65536 // 4


def test_a_policy_that_there_is_not_is_told_when_the_map_is_made(rows):
    with pytest.raises(majorfault.Invalid, match="there is no policy"):
        opened(rows, policy="clairvoyant")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_index_gives_what_numpy_gives(data):
    """Shapes, kinds of indices and errors; the announcement changes none of them."""
    path = SMALL.path()
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=7))
    plain = np.memmap(path, "u2", "r", shape=shape)
    ours = majorfault.memmap(path, "u2", "r", shape=shape)
    basic = hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)
    arrays = hnp.integer_array_indices(shape) | hnp.arrays(bool, shape[:1])
    mixed = st.tuples(*[st.integers(-9, 9) | st.slices(7) | st.lists(st.integers(-8, 8), max_size=4) for _ in shape])
    index = data.draw(basic | arrays | mixed)
    try:
        expected = plain[index]
    except Exception as failure:
        with pytest.raises(type(failure)):
            ours[index]
        return

    found = ours[index]

    assert np.shape(found) == np.shape(expected)
    assert (np.asarray(found) == np.asarray(expected)).all()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_is_announced_is_what_numpy_touches(data):
    """Every item of the result lies in an announced range, and no page without one is announced, but holes of a page."""
    from majorfault import _core
    from majorfault.numpy import _reading

    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=40))
    base = np.zeros(shape, "V700")
    places = (np.arange(base.size) * 700).reshape(shape)
    rows = hnp.integer_array_indices(shape) | hnp.basic_indices(shape, allow_ellipsis=False)
    index = data.draw(rows | st.tuples(*[st.slices(40) | st.lists(st.integers(0, side - 1), min_size=1, max_size=5) for side in shape]))
    try:
        touched = np.unique(places[index])
    except IndexError:
        return
    view, wanted = _reading(base, index)
    if view is None or not touched.size:
        return

    origin = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    ranges = [(begin + origin, end + origin) for begin, end in _core.extents(np.atleast_1d(view), wanted)]

    covered = np.zeros(base.nbytes, bool)
    for begin, end in ranges:
        assert 0 <= begin < end <= base.nbytes
        covered[begin:end] = True
    assert all(covered[place : place + 700].all() for place in touched)
    announced = {page for begin, end in ranges for page in range(begin // PAGE, (end - 1) // PAGE + 1)}
    needed = {page for place in touched.tolist() for page in range(place // PAGE, (place + 699) // PAGE + 1)}
    assert all({page - 1, page, page + 1} & needed for page in announced)


class Small:
    """One small file for all examples."""

    def __init__(self):
        self._path = None

    def path(self):
        if self._path is None:
            self._path = f"/var/tmp/majorfault-python-small-{os.getpid()}"
            np.arange(7**4, dtype="u2").tofile(self._path)
            atexit.register(os.unlink, self._path)
        return self._path


SMALL = Small()


@pytest.mark.parametrize(
    "part",
    [
        lambda array: array,
        lambda array: array[10:20],
        lambda array: array[::-3, 5:9],
        lambda array: array.T[7],
        lambda array: array[5:5],
        lambda array: array.view("u1"),
        lambda array: array[3, 4, None],
    ],
)
def test_it_pickles_by_path(rows, part):
    array = part(opened(rows))

    pickled = pickle.dumps(array)
    found = pickle.loads(pickled)

    assert len(pickled) < 1000
    assert type(found) is (majorfault.memmap if array.size else np.ndarray) and found.shape == array.shape and found.dtype == array.dtype
    assert (np.asarray(found) == np.asarray(array)).all()
    assert (np.asarray(pickle.loads(pickle.dumps(found))) == np.asarray(array)).all()
    if array.size:
        assert found.mode == "r" and found.is_guarded and not found.flags.writeable
        assert majorfault.file_of(found)[1] == majorfault.file_of(array)[1]


def test_results_and_changes_of_its_own_pickle_by_value(rows):
    copied = opened(rows, "c")
    copied[3] = 7

    assert (pickle.loads(pickle.dumps(copied))[3] == 7).all()
    assert type(pickle.loads(pickle.dumps(opened(rows)[[1]]))) is np.ndarray
    assert (copy.deepcopy(opened(rows))[5] == 5).all()


def test_a_file_that_is_shorter_than_when_it_was_pickled_is_told(rows):
    pickled = pickle.dumps(opened(rows))
    os.truncate(rows[0], 100 * ROW)

    with pytest.raises(majorfault.Truncated, match="shorter than when"):
        pickle.loads(pickled)


@pytest.mark.parametrize(
    "use",
    [
        lambda array: array[900, 5],
        lambda array: array[[900]],
        lambda array: array.sum(),
        lambda array: array[800:] + 1,
        lambda array: np.sort(array[900]),
        lambda array: [row.sum() for row in array],
    ],
)
def test_a_truncated_file_is_an_exception(rows, use):
    array = opened(rows)
    os.truncate(rows[0], 100 * ROW)

    with pytest.raises(majorfault.Truncated, match="is gone"):
        use(array)

    with pytest.raises(majorfault.Truncated):
        majorfault.check(np.asarray(array)[5:])


def test_a_part_that_is_still_there_can_be_read(rows):
    array = opened(rows)
    os.truncate(rows[0], 100 * ROW)

    assert int(array[99].sum()) == 99 * 4096
    array.check()


def test_writing_reaches_the_file(rows):
    array = opened(rows, "r+")
    array[5] = 1
    array += 1
    array.flush()

    assert np.fromfile(rows[0], "u4", 1, offset=5 * ROW)[0] == 2


def test_threads_share_a_map(rows):
    array = opened(rows)
    wrong = []

    def reads(seed):
        for wanted in np.random.default_rng(seed).integers(0, 1024, (50, 16)):
            if array[wanted][:, 3].tolist() != wanted.tolist() or majorfault.take(array, wanted)[:, 3].tolist() != wanted.tolist():
                wrong.append(seed)
            if seed % 2:
                majorfault.release(array)

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert wrong == []


def test_maps_are_collected_in_any_order(rows):
    before = open("/proc/self/maps").read().count(str(rows[0]))
    for order in range(6):
        array = opened(rows)
        parts = [array, array[3:], array[:, 5], array._mmap, array._guard, np.asarray(array[7])]
        cycle = [parts]
        cycle.append(cycle)
        del array
        for _ in range(6):
            del parts[order % len(parts)]
        del parts, cycle
        gc.collect()

    assert open("/proc/self/maps").read().count(str(rows[0])) == before


def test_more_maps_than_guards_work_unguarded(rows):
    maps = [majorfault.memmap(rows[0], "u4", "r", shape=(4,)) for _ in range(1100)]

    assert not maps[-1].is_guarded and int(maps[-1][3]) == 0
    del maps
    gc.collect()
    assert opened(rows).is_guarded


FORKED = """
import os, sys, threading, numpy, majorfault
path = sys.argv[1]
array = majorfault.memmap(path, "u4", "r", shape=(1024, 4096))
numbers = numpy.arange(0, 1024, 7)
def work(times):
    for _ in range(times):
        assert array[numbers][:, 1].tolist() == numbers.tolist()
        assert majorfault.take(array, numbers)[:, 1].tolist() == numbers.tolist()
        majorfault.prefetch(array, numbers)
        majorfault.release(array, numbers)
work(1)
threads = [threading.Thread(target=work, args=(30,)) for _ in range(3)]
[thread.start() for thread in threads]
children = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        work(2)
        os._exit(0)
    children.append(child)
[thread.join() for thread in threads]
work(1)
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert ended == [0] * 10, ended
print("done")
"""


def test_a_fork_with_maps_open_and_threads_at_work_harms_neither_side(rows):
    ended = run(FORKED, rows[0])

    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr


EXITING = """
import sys, threading, numpy, majorfault
array = majorfault.memmap(sys.argv[1], "u4", "r", shape=(1024, 4096))
class Late:
    def __del__(self):
        array[[1, 2]], majorfault.prefetch(array, [3])
array.late = Late()
view = array[3:]
ahead = iter(majorfault.Ahead([[1], [2], [3]], array, 1))
next(ahead)
def reads():
    while True:
        majorfault.take(array, numpy.arange(64)); majorfault.prefetch(array); majorfault.release(array)
threading.Thread(target=reads, daemon=True).start()
print("done")
"""


def test_the_interpreter_ends_with_maps_open_and_a_thread_at_work(rows):
    for _ in range(5):
        ended = run(EXITING, rows[0])

        assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr
