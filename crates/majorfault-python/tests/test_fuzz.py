"""Any call with any arguments: an exception or an answer, never a crash. MAJORFAULT_FUZZ sets the number of calls."""

import atexit
import mmap
import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import majorfault
from majorfault import _core

CALLS = int(os.environ.get("MAJORFAULT_FUZZ", "1500"))


class World:
    """Arrays of every kind, some of them spoiled."""

    def __init__(self):
        self.path = f"/var/tmp/majorfault-python-fuzz-{os.getpid()}"
        np.arange(40 * 4096, dtype="u4").tofile(self.path)
        self.whole = np.memmap(self.path, "u4", "r", shape=(40, 4096))
        self.ours = majorfault.memmap(self.path, "u4", "r+", shape=(40, 4096))
        short = self.path + "-short"
        np.arange(40 * 4096, dtype="u4").tofile(short)
        self.truncated = majorfault.memmap(short, "u4", "r", shape=(40, 4096))
        os.truncate(short, 50000)
        with open(self.path, "r+b") as file:
            closed = mmap.mmap(file.fileno(), 0)
            self.map = mmap.mmap(file.fileno(), 0)
        closed.close()
        released = memoryview(self.map)
        released.release()
        whole = self.whole
        self.arrays = [
            whole, whole[::-2, ::3], whole.T, whole[3:3], whole[5], whole.view("M8[s]"), np.broadcast_to(whole[0], (9, 4096)),
            self.ours, self.ours[7:9], self.truncated, self.truncated[3], self.map, memoryview(self.map)[5:], closed, released,
            np.zeros((3, 5)), b"bytes", bytearray(9), np.zeros(0), np.array(5), np.array([None]), None, 3, "text", [whole, self.map], {"a": whole},
            np.lib.stride_tricks.as_strided(whole[0, :1], (5, 5), (0, 0)), object(), [], whole.view([("a", "u2"), ("b", "u2")]),
        ]  # fmt: skip

        atexit.register(os.unlink, self.path)
        atexit.register(os.unlink, short)


WORLD = World()
integers = st.integers(-(2**70), 2**70) | st.integers(-50, 50)
rows = (
    st.none()
    | integers
    | st.lists(integers | st.booleans() | st.none() | st.text(max_size=2), max_size=5)
    | st.slices(50)
    | st.builds(range, st.integers(-99, 99), st.integers(-99, 99))
    | hnp.arrays(hnp.integer_dtypes() | hnp.unsigned_integer_dtypes() | hnp.floating_dtypes() | st.just(np.dtype(bool)), hnp.array_shapes(min_dims=0, max_dims=2, max_side=6, min_side=0))
    | st.text(max_size=3)
    | st.binary(max_size=16)
)
arrays = st.sampled_from(range(len(WORLD.arrays))).map(lambda at: WORLD.arrays[at])
paths = st.sampled_from([WORLD.path, "/nowhere", "/var/tmp", "", "/dev/null", "\0", "/proc/self/mem"])
words = st.sampled_from(["auto", "uring", "uring:direct=off,depth=3", "pread", "mmap", "null", "pool", "uffd", "", "uring:depth=x", ":", "random", "cold"]) | st.text(max_size=5)  # fmt: skip


@st.composite
def calls(draw):
    kind = draw(st.integers(0, 14))
    array, other = draw(arrays), draw(rows)
    number = draw(integers)
    match kind:
        case 0 | 1 | 2:
            return lambda: majorfault.prefetch(array, other)
        case 3:
            return lambda: majorfault.release(array, other)
        case 4:
            return lambda: majorfault.residency(array)
        case 5:
            word = draw(words)
            return lambda: majorfault.advise(array, word)
        case 6:
            return lambda: majorfault.file_of(array)
        case 7:
            return lambda: majorfault.take(array, other)
        case 8:
            path, word, size = draw(paths), draw(words), draw(st.integers(-3, 9000))
            depth = draw(st.integers(-1, 200))
            return lambda: majorfault.take(path, other, dtype="u1", row_shape=(size,), offset=number, method=word, depth=depth)
        case 9:
            return lambda: WORLD.ours[other]
        case 10:
            return lambda: WORLD.truncated[other]
        case 11:
            again = draw(rows)
            return lambda: WORLD.ours[other, again]
        case 12:
            first, second = draw(rows), draw(rows)
            return lambda: _core.prefetch_ranges(array, np.asarray(first), np.asarray(second))
        case 13:
            return lambda: (_core.extents(array, other), _core.Guard(array).gone)
        case _:
            path, word = draw(paths), draw(words)
            return lambda: _core.Follower(path, abs(number) % 2**64, abs(number) % 90000, word).meet(abs(number) % 2**64, 5)


@settings(max_examples=CALLS, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls())
def test_any_call_gives_an_answer_or_an_exception(call):
    try:
        call()
    except (majorfault.Error, TypeError, ValueError, IndexError, OverflowError, BufferError, OSError, AttributeError):
        pass

    assert int(WORLD.whole[39, 4095]) == 40 * 4096 - 1
