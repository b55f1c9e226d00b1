"""Sweeps over a cluster, the scripts of contrib/fleet, and records as tables."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import majorfault
from majorfault import _command, fleet

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "contrib" / "fleet"
RECORDS = sorted(str(path) for path in (ROOT / "records").glob("*.jsonl.gz"))
QUICK = ["--method", "pread", "--bs", "16k", "--runs", "1", "--number-ios", "20", "--no-peer", "--quiet"]


@pytest.fixture(scope="module")
def command():
    try:
        return _command.command()
    except majorfault.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def data(disk):
    path = disk[0] / "fleet rows"
    path.write_bytes(os.urandom(1 << 20))
    return path


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed; pip install majorfault[fleet]")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as local, distributed.Client(local) as client:
        yield client


def records_of(path):
    return [json.loads(line) for line in gzip.open(path, "rt")]


def test_a_sweep_runs_each_job_once_on_each_host_and_tells_of_those_that_failed(cluster, command, data, tmp_path):
    jobs = [["compare", *QUICK, str(data)], f"compare {' '.join(QUICK)} --bs 4k '{data}'", "compare /there/is/no/such/file", "compare --no-such-option"]

    swept = fleet.sweep(jobs, cluster, tmp_path / "records")
    again = fleet.sweep(jobs[:1], cluster, tmp_path / "records")

    # Two workers, one host.
    (host,) = fleet.hosts(cluster)
    # A run that neighbours on the machine spoiled is made again: one record at least.
    assert [(row.host, row.runs > 0, row.ok) for row in swept.rows] == [(host, True, True), (host, True, True), (host, False, False), (host, False, False)]
    assert [row.code for row in swept.failed] == [2, 2]
    assert "/there/is/no/such/file" in swept.failed[0].said and "--no-such-option" in swept.failed[1].said
    assert "/there/is/no/such/file" in repr(swept)
    # What an earlier sweep has left is still there.
    found = records_of(tmp_path / "records" / f"{host}.jsonl.gz")
    sizes = [record["trial"]["block_bytes"] for record in found]
    counts = [row.runs for row in swept.rows[:2] + again.rows]
    assert not again.failed and sizes == [16384] * counts[0] + [4096] * counts[1] + [16384] * counts[2]


def test_sweeps_at_once_do_not_measure_each_other(cluster, tmp_path):
    # A command that notes when it began and ended.
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\necho began >>{tmp_path}/log\nsleep 0.2\necho ended >>{tmp_path}/log\n")
    tool.chmod(0o755)
    (host, address), = fleet.hosts(cluster).items()
    workers = sorted(cluster.scheduler_info()["workers"])
    assert len(workers) == 2 and address in workers

    tasks = [cluster.submit(fleet._on_host, host, [("compare",)] * 2, None, str(tool), workers=[one], pure=False) for one in workers]
    rows = [row for task in tasks for row in task.result()[0]]

    assert [row.code for row in rows] == [0] * 4
    assert (tmp_path / "log").read_text().split() == ["began", "ended"] * 4


def test_a_lost_host_and_a_job_that_takes_too_long_are_rows(cluster, tmp_path, monkeypatch):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)

    late = fleet.sweep(["compare a"], cluster, tmp_path / "records", timeout=0.1, tool=str(tool))
    none = fleet.sweep(["compare a"], cluster, tmp_path / "records", tool=str(tmp_path / "nothing"))

    def lost(*_):
        raise MemoryError("the worker is gone")

    monkeypatch.setattr(fleet, "_on_host", lost)
    gone = fleet.sweep(["compare a", "compare b"], cluster, tmp_path / "records")

    assert [row.said for row in late.failed] == ["ended after 0.1 s (timeout)"]
    assert "No such file" in none.failed[0].said
    assert [(row.job, row.code, row.said) for row in gone.failed] == [
        (("compare", "a"), None, "MemoryError: the worker is gone"),
        (("compare", "b"), None, "MemoryError: the worker is gone"),
    ]
    assert not list((tmp_path / "records").iterdir())


def test_what_cannot_be_a_sweep_is_refused(tmp_path):
    for jobs, told in [([], "needs a job"), (["doctor 1"], "compare or reproduce"), ([""], "compare or reproduce"), (["compare a --records b"], "leave --records out")]:
        with pytest.raises(majorfault.Invalid, match=told):
            fleet.sweep(jobs, None, tmp_path)
    with pytest.raises(majorfault.Invalid, match="there are no records /nowhere/"):
        fleet.parquet("/nowhere/*.jsonl", tmp_path / "out")


def test_half_a_line_of_an_interrupted_command_is_no_record(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nprintf '{\"a\":1}\\n{\"b\"' >\"${2#--records=}\"\nexit 3\n")
    tool.chmod(0o755)

    rows, packed = fleet.run("here", [("compare", "x")], None, str(tool))

    assert gzip.decompress(packed) == b'{"a":1}\n'
    assert [(row.code, row.runs, row.ok) for row in rows] == [(3, 1, False)]


# The scripts.


def test_the_slurm_script_leaves_the_records_of_each_host_once(command, data, tmp_path):
    environment = os.environ | {"MAJORFAULT": command, "MAJORFAULT_RECORDS": str(tmp_path / "records"), "SLURM_ARRAY_JOB_ID": "7", "SLURMD_NODENAME": "node1"}

    def task(*words, **changed):
        return subprocess.run(["sh", str(SCRIPTS / "slurm.sh"), *words], env=environment | changed, capture_output=True, text=True, check=False)

    subprocess.run(["sh", "-n", str(SCRIPTS / "slurm.sh")], check=True)
    first, second = task("compare", *QUICK, str(data)), task("compare", *QUICK, str(data))
    other, failed = task("compare", *QUICK, str(data), SLURMD_NODENAME="node2"), task("compare", "/there/is/no/such/file", SLURMD_NODENAME="node3")

    assert (first.returncode, second.returncode, other.returncode, failed.returncode) == (0, 0, 0, 1), first.stderr
    assert second.stdout == "node1 was measured by another task of this array\n"
    assert task("doctor").returncode == 2
    kept = sorted(path.name for path in (tmp_path / "records").glob("*.gz"))
    assert kept == ["node1.jsonl.gz", "node2.jsonl.gz"]
    assert all(len({record["session"] for record in records_of(tmp_path / "records" / name)}) == 1 for name in kept)


def test_the_playbook_runs_a_command_line_that_the_program_accepts(command, data, tmp_path):
    yaml = pytest.importorskip("yaml")
    (play,) = yaml.safe_load((SCRIPTS / "ansible.yml").read_text())
    measure = play["tasks"][1]["block"][0]
    job = play["vars"]["job"]

    # Ansible's own words, said once more in Python.
    assert measure["ansible.builtin.command"]["argv"] == "{{ [majorfault, job[0], '--records', folder.path ~ '/records.jsonl'] + job[1:] }}"
    records = tmp_path / "records.jsonl"
    given = [str(data) if word == "/data/rows.bin" else word for word in job]
    ran = subprocess.run([command, given[0], "--records", str(records), *given[1:], *QUICK[:2], *QUICK[4:]], capture_output=True, text=True, check=False)

    assert ran.returncode in (0, 1), ran.stderr
    assert {json.loads(line)["trial"]["block_bytes"] for line in records.read_text().splitlines()} == {16384}
    assert {task["name"] for task in play["tasks"][1]["always"]} >= {"Fetch them", "Remove the folder"}


def test_the_job_of_kubernetes_prints_its_records(command, data):
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((SCRIPTS / "job.yaml").read_text())["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]

    assert (job["completionMode"], job["completions"] == job["parallelism"], job["backoffLimit"], pod["restartPolicy"]) == ("Indexed", True, 0, "Never")
    (rule,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"].items() <= job["template"]["metadata"]["labels"].items()
    given = [str(data) if word == "/data/rows.bin" else word for word in container["args"]]
    ran = subprocess.run([command, given[0], *QUICK[:2], *QUICK[4:-1], *given[1:]], capture_output=True, text=True, check=False)
    # As job.yaml says to collect them.
    records = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"format":')]

    assert ran.returncode in (0, 1), ran.stderr
    assert {record["trial"]["block_bytes"] for record in records} == {16384}


def test_the_script_for_dask_sweeps(command, data, tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed; pip install majorfault[fleet]")
    script = [sys.executable, str(SCRIPTS / "dask_sweep.py"), "local", str(tmp_path / "records")]

    ran = subprocess.run([*script, f"compare {' '.join(QUICK)} '{data}'"], capture_output=True, text=True, check=False, timeout=120)

    assert ran.returncode == 0, ran.stderr
    assert " runs of 1 hosts in " in ran.stdout and not ran.stdout.startswith("0 ")


# Records as tables.


@pytest.fixture(scope="module")
def ledger(command):
    return fleet.ledger(RECORDS)


@pytest.fixture(scope="module")
def database(ledger):
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    return fleet.database(RECORDS, ledger)


def test_every_record_is_a_run_with_its_phases(database):
    records = [record for path in RECORDS for record in records_of(path)]

    done = sum(record["outcome"] == "done" for record in records)
    spoiled = sum(any(gate["finding"] == "spoiled" for gate in record["gates"]) for record in records)
    names = sorted(Path(path).name.removesuffix(".jsonl.gz") for path in RECORDS)
    counted = """SELECT count(*), count(DISTINCT session), count(*) FILTER (outcome = 'done'), count(*) FILTER (len(spoiled_by) > 0),
        count(*) FILTER (outcome = 'missing' AND outcome_reason IS NOT NULL), list_sort(list(DISTINCT source)) FROM runs"""
    assert database.sql(counted).fetchall() == [(len(records), len({one["session"] for one in records}), done, spoiled, len(records) - done, names)]
    walls = sum(phase["wall_ns"] for record in records for phase in record["phases"])
    faults = sum(phase["counters"].get("major_faults", 0) for record in records for phase in record["phases"])
    assert database.sql("SELECT sum(wall_ns), sum(counters['major_faults']) FROM phases").fetchall() == [(walls, faults)]


def test_the_types_do_not_depend_on_the_records(database, tmp_path):
    one = json.loads(gzip.open(RECORDS[0], "rt").readline()) | {"settings": {}, "figures": {}, "threads": [], "something_new": {"a": 1}}
    one["trial"]["something_new"] = 1
    (tmp_path / "one.jsonl").write_text(json.dumps(one) + "\n")

    assert fleet.database(tmp_path / "one.jsonl").sql("DESCRIBE runs").fetchall() == database.sql("DESCRIBE runs").fetchall()
    assert fleet.database(tmp_path / "one.jsonl").sql("SELECT source, accesses FROM runs").fetchall() == [("one", 0)]


def test_parquet_holds_the_same_runs(ledger, tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    pytest.importorskip("pyarrow")
    # The latest: of both formats the one that has all fields. Of the older one every row is compared by its counts above.
    count = fleet.parquet(RECORDS[:1], tmp_path / "runs.parquet", batch=100)

    other, database = fleet.database(tmp_path / "runs.parquet", ledger), fleet.database(RECORDS[:1], ledger)

    assert other.sql("DESCRIBE runs").fetchall() == database.sql("DESCRIBE runs").fetchall()
    everything = "SELECT * FROM runs ORDER BY ALL"
    assert count == len(other.sql(everything).fetchall())
    assert other.sql(everything).fetchall() == database.sql(everything).fetchall()
    assert other.sql("FROM drift").fetchall() == database.sql("FROM drift").fetchall()
    with pytest.raises(majorfault.Invalid, match="counted twice"):
        fleet.database([*RECORDS, tmp_path / "runs.parquet"])


def test_claims_are_the_ledgers_sessions(database, ledger):
    judged = sorted((claim["id"], one["session"], one["verdict"]) for claim in ledger["claims"] for one in claim["sessions"] if one["run"])

    assert sorted(database.sql("SELECT id, session, verdict FROM claims").fetchall()) == judged
    assert database.sql("SELECT count(*) FROM claims WHERE kernel IS NULL").fetchall() == [(0,)]


def test_a_verdict_that_flips_from_kernel_to_kernel_is_marked(tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    one = json.loads(gzip.open(RECORDS[0], "rt").readline())
    # 6.9 comes before 6.10; vda and vdb are the same kind of device, nvme0n1 is another.
    sides = [("6.10.1", "vda", "holds here"), ("6.9.7", "vdb", "holds here"), ("6.12", "vda", "does not hold here"), ("6.13", "vda", "does not hold here"), ("6.9.7", "nvme0n1", "undecided")]
    with gzip.open(tmp_path / "records.jsonl.gz", "wt") as file:
        for number, (kernel, device, _) in enumerate(sides):
            file.write(json.dumps(one | {"session": str(number), "machine": one["machine"] | {"kernel": kernel, "device": device}}) + "\n")
    sessions = [{"session": str(number), "verdict": verdict, "ours": "1 x", "reason": "", "n": 6, "run": True} for number, (_, _, verdict) in enumerate(sides)]
    sessions.append({"session": "9", "verdict": "", "ours": "", "reason": "", "n": 0, "run": False})
    claim = {"id": "S9.made", "experiment": "S9", "kind": "published claims", "says": "it is so", "published": "2 x", "sessions": sessions}

    found = fleet.database(tmp_path / "records.jsonl.gz", {"claims": [claim]}).sql("SELECT device_class, kernel, verdict, flips FROM drift").fetchall()

    assert found == [
        ("nvme", "6.9.7", "undecided", False),
        ("vd", "6.9.7", "holds here", False),
        ("vd", "6.10.1", "holds here", False),
        ("vd", "6.12", "does not hold here", True),
        ("vd", "6.13", "does not hold here", False),
    ]
