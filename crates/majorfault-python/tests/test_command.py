"""The command in the wheel, and its documents as objects."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

import majorfault
from majorfault import _command


@pytest.fixture(scope="module", autouse=True)
def command():
    try:
        return _command.command()
    except majorfault.Missing as missing:
        pytest.skip(str(missing))


def test_the_module_is_the_command(command):
    said = subprocess.run([sys.executable, "-m", "majorfault", "--version"], capture_output=True, text=True, check=True)

    assert said.stdout == subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.stdout.startswith("majorfault ")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    records = tmp_path_factory.mktemp("records") / "runs.jsonl"
    given = {"method": ["mmap", "pread"], "size": "8m", "number_ios": 200, "runs": 2, "no_peer": True, "quiet": True}
    return majorfault.compare(**given, records=records), records


def test_a_comparison_is_a_table_and_a_page(compared):
    found, _ = compared

    assert {"mmap", "pread"} <= {row["arm"].split()[0] for row in found.rows()}
    assert len({tuple(row) for row in found.rows()}) == 1
    assert all(row["throughput_per_s"] is None or row["throughput_per_s"] > 0 for row in found.rows())
    assert len(found.answers) == 1 and repr(found) == found.answers[0]
    assert found.page.startswith("<!doctype html>")
    assert found._repr_html_().startswith("<iframe srcdoc=") and "<svg" not in found._repr_html_().split("srcdoc", 1)[0]


def test_a_report_of_the_records_says_the_same(compared):
    found, records = compared

    again = majorfault.report(records)

    assert again.answers == found.answers
    assert again.rows() == found.rows()


def test_tables_go_to_pandas_and_arrow(compared):
    found, _ = compared
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")

    assert isinstance(found.df(), pandas.DataFrame) and len(found.df()) == len(found.rows())
    assert isinstance(found.to_arrow(), pyarrow.Table) and found.to_arrow().to_pylist() == found.rows()


def test_the_doctor_looks_at_this_process(rows):
    """Faults of random rows, as long as it looks."""
    array, is_done = np.memmap(rows[0], "u4", "r", shape=rows[1]), threading.Event()

    def faults():
        while not is_done.is_set():
            majorfault.release(array, drop=True)
            array[np.random.default_rng(7).permutation(1024)[:100]].sum()

    thread = threading.Thread(target=faults)
    thread.start()
    try:
        found = majorfault.doctor(seconds=1)
    finally:
        is_done.set()
        thread.join()

    assert any(file["path"] == str(rows[0]) for file in found.data["files"])
    assert len(found) == len(found.rows()) == len(list(found))
    assert found.missing == found.data["missing"] and isinstance(repr(found), str)
    json.dumps(found.rows())


def test_what_the_command_refuses_is_an_exception_with_its_words():
    with pytest.raises(majorfault.Invalid, match="no-such-option"):
        majorfault.compare(no_such_option=1)
    with pytest.raises(majorfault.Error, match="/nowhere"):
        majorfault.report("/nowhere")
    with pytest.raises(majorfault.Invalid, match="is no option"):
        majorfault.compare(**{"a b": 1})
    with pytest.raises(majorfault.Error):
        majorfault.doctor(2**22 + 1)
