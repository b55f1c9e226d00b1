"""Ahead: order, bounds, and that nobody waits."""

import numpy as np
import pytest
from conftest import Cost

import majorfault


class Told:
    """Notes what is announced."""

    def __init__(self, size=10):
        self.events, self.size = [], size

    def __prefetch__(self, rows):
        self.events.append(("announced", list(rows)))
        return self.size


def order(batches, ahead, size=10, **given):
    told = Told(size)
    for batch in majorfault.Ahead(batches, told, ahead, **given):
        told.events.append(("used", list(batch)))
    return told.events


def test_each_batch_is_announced_once_and_the_given_number_ahead():
    events = order([[1], [2], [3], [4]], 2)

    assert events == [
        ("announced", [1]),
        ("announced", [2]),
        ("announced", [3]),
        ("used", [1]),
        ("announced", [4]),
        ("used", [2]),
        ("used", [3]),
        ("used", [4]),
    ]


@pytest.mark.parametrize("budget", [0, 10, 25, 40, 1000])
@pytest.mark.parametrize("ahead", [1, 3, 8])
def test_no_more_bytes_are_ahead_than_the_budget_but_one_batch(budget, ahead):
    events = order([[number] for number in range(30)], ahead, budget=budget)

    coming, ahead_at_use = 0, []
    for what, _ in events:
        ahead_at_use += [coming] if what == "used" else []
        coming += 1 if what == "announced" else -1
    assert [rows for what, rows in events if what == "used"] == [[number] for number in range(30)]
    # One batch is in use, and one is always ahead.
    wanted = max(2, min(ahead + 1, budget // 10))
    assert ahead_at_use == [wanted] * (31 - wanted) + list(range(wanted - 1, 0, -1))


def test_batches_of_an_array_wait_for_no_fault(rows, counted):
    path, shape = rows
    array = np.memmap(path, "u4", "r", shape=shape)
    batches = np.random.default_rng(4).permutation(1024).reshape(64, 16)

    with Cost() as cost:
        for batch in majorfault.Ahead(batches, array):
            assert array[batch][:, 0].tolist() == batch.tolist()

    assert cost.read(1024 * 16384) and not cost.waited()
    assert majorfault.residency(array).resident_bytes == 1024 * 16384


def test_a_sampler_tells_its_length_and_may_be_used_again():
    ahead = majorfault.Ahead([[1], [2]], Told())

    assert (len(ahead), list(ahead), list(ahead)) == (2, [[1], [2]], [[1], [2]])
    with pytest.raises(ValueError, match="at least one"):
        majorfault.Ahead([], Told(), 0)


def test_what_cannot_be_announced_is_told_at_the_first_batch():
    with pytest.raises(majorfault.NotMapped):
        next(iter(majorfault.Ahead([[1]], np.zeros((9, 99999)))))
