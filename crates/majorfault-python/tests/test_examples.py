"""The notebooks run, cell by cell, and show what they say."""

import json
from pathlib import Path

import pytest
from conftest import Cost

NOTEBOOKS = sorted(Path(__file__).parents[1].glob("examples/*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook):
    world = {}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), world)  # noqa: S102


def test_announced_batches_wait_less_and_read_only_what_is_wanted(counted):
    world = {}
    for cell in json.loads(NOTEBOOKS[0].read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), world)  # noqa: S102

    assert world["fewer_waits"] <= Cost.STRAY_FAULTS
    assert world["wanted"].resident_bytes == 512 * 16384
    assert world["brought"].resident_bytes >= 512 * 16384
