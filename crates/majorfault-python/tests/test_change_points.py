"""`majorfault report --drift --csv` is what Apache Otava reads: a change that was planted in one series is found there, and in no other."""

import csv
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import majorfault
from majorfault import _command

ROOT = Path(__file__).resolve().parents[3]
SESSIONS = 24
CHANGED_FROM = 12
BEGAN = 1_790_000_000
HOURS = 3600

# As docs/drift.md has it.
CONFIGURATION = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "drift.md").read_text(), re.DOTALL)[1]


@pytest.fixture(scope="module")
def otava():
    beside = Path(sys.executable).with_name("otava")
    found = os.environ.get("MAJORFAULT_OTAVA") or (str(beside) if beside.exists() else shutil.which("otava"))
    return found or pytest.skip("Apache Otava is not installed; pip install apache-otava, in an environment of its own if need be, and MAJORFAULT_OTAVA=…/bin/otava")


@pytest.fixture(scope="module")
def command():
    try:
        return _command.command()
    except majorfault.Missing as missing:
        pytest.skip(str(missing))


def runs():
    """The runs of one claim, S0.faster, in the first whole session."""
    with gzip.open(ROOT / "records" / "linux-6.18-standard-1.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    return [record for record in records if record["cell"]["experiment"] == "S0" and record["cell"]["name"] in ("mmap", "buffer")]


def sessions(folder, processors, ratio):
    """A file for each session of a machine, on which mapping takes `ratio(session)` times as long as reading; noise of 2 %."""
    real, dice = runs(), random.Random(processors)
    for number in range(SESSIONS):
        with open(folder / f"{processors}-{number:02}.jsonl", "w") as file:
            for record in real:
                record = json.loads(json.dumps(record))
                record["session"] = f"{BEGAN + number * HOURS}-{processors}"
                record["began_unix_s"] = BEGAN + number * HOURS
                record["machine"]["cpus"] = processors
                slower = ratio(number) if record["cell"]["name"] == "mmap" else 1.0
                for phase in record["phases"]:
                    phase["wall_ns"] = int(1e8 * slower * dice.uniform(0.98, 1.02))
                file.write(json.dumps(record) + "\n")


def change_points(otava, folder, branch):
    """The changes that Otava finds in a series: since when, and what was so many per cent before."""
    environment = os.environ | {"OTAVA_CONFIG": str(folder / "otava.yaml")}
    words = ["analyze", "majorfault", "--branch", branch, "--since", "2000-01-01", "--output", "json"]
    ran = subprocess.run([otava, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout)["majorfault"]
    return [(point["time"], point["attributes"]["source"], change["metric"], float(change["forward_change_percent"])) for point in found for change in point["changes"]]


def test_a_planted_change_is_found_in_its_series_alone(otava, command, tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    sessions(records, 4, lambda _: 2.0)
    sessions(records, 8, lambda number: 2.0 if number < CHANGED_FROM else 1.6)
    subprocess.run([command, "report", "--drift", str(records), "--csv", str(tmp_path / "claims.csv")], check=True, capture_output=True)
    (tmp_path / "otava.yaml").write_text(CONFIGURATION)
    with open(tmp_path / "claims.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["claim"] == "S0.faster"]
    branches = {row["machine"].split(" x ")[0]: row["branch"] for row in rows}
    assert len(rows) == 2 * SESSIONS and len(set(branches.values())) == 2

    steady, changed = (change_points(otava, tmp_path, branches[processors]) for processors in ("4", "8"))

    assert steady == []
    assert [(time, source, metric) for time, source, metric, _ in changed] == [(BEGAN + CHANGED_FROM * HOURS, f"8-{CHANGED_FROM}", "figure")]
    assert changed[0][3] == pytest.approx(-20, abs=2)
