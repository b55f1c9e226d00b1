"""Sweeps over a cluster, the scripts of contrib/fleet, and records as tables."""

import csv
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


def test_many_hosts_are_swept_some_at_a_time_and_none_is_left_out(cluster, tmp_path, monkeypatch):
    (address,) = fleet.hosts(cluster).values()
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nprintf '{}\\n' >\"${2#--records=}\"\n")
    tool.chmod(0o755)
    monkeypatch.setattr(fleet, "hosts", lambda _: {f"host{number}": address for number in range(7)})

    swept = fleet.sweep(["compare a"], cluster, tmp_path / "records", tool=str(tool), at_once=2)

    assert [(row.host, row.runs, row.ok) for row in swept.rows] == [(f"host{number}", 1, True) for number in range(7)]
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == [f"host{number}.jsonl.gz" for number in range(7)]
    with pytest.raises(majorfault.Invalid, match="at_once=0"):
        fleet.sweep(["compare a"], cluster, tmp_path / "records", at_once=0)


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
def judged(command, tmp_path_factory):
    return fleet.judge(RECORDS, tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="module")
def database(judged):
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    return fleet.database(RECORDS, judged)


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


def test_parquet_holds_the_same_runs(judged, tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    pytest.importorskip("pyarrow")
    # The latest: of both formats the one that has all fields. Of the older one every row is compared by its counts above.
    count = fleet.parquet(RECORDS[:1], tmp_path / "runs.parquet", batch=100)

    other, database = fleet.database(tmp_path / "runs.parquet", judged), fleet.database(RECORDS[:1], judged)

    assert other.sql("DESCRIBE runs").fetchall() == database.sql("DESCRIBE runs").fetchall()
    everything = "SELECT * FROM runs ORDER BY ALL"
    assert count == len(other.sql(everything).fetchall())
    assert other.sql(everything).fetchall() == database.sql(everything).fetchall()
    with pytest.raises(majorfault.Invalid, match="counted twice"):
        fleet.database([*RECORDS, tmp_path / "runs.parquet"])


def test_claims_are_the_ledgers_sessions(database, command):
    ran = subprocess.run([command, "reproduce", "--json", "--from", *RECORDS], capture_output=True, text=True, check=False)
    ledger = json.loads(ran.stdout)["claims"]
    tests = json.loads(subprocess.run([command, "reproduce", "--list", "--json"], capture_output=True, text=True, check=True).stdout)["rows"]
    judged_by_tests = {row["id"] for row in tests if row["judge"] == "claim"}
    said = sorted((claim["id"], one["session"], one["verdict"]) for claim in ledger if claim["id"] in judged_by_tests for one in claim["sessions"] if one["run"])

    assert sorted(database.sql("SELECT id, session, verdict FROM claims").fetchall()) == said
    assert database.sql("SELECT count(*) FROM claims WHERE kernel IS NULL OR tool IS NULL OR began_unix_s IS NULL").fetchall() == [(0,)]
    # One kernel, device and file system: what all sessions agree on is what the ledger says, and nothing can flip.
    agreed = sorted((claim["id"], claim["verdict"]) for claim in ledger if claim["id"] in {id for id, _, _ in said})
    assert sorted(database.sql("SELECT id, verdict FROM drift").fetchall()) == agreed
    assert database.sql("SELECT count(*) FROM drift WHERE flips IS NOT NULL").fetchall() == [(0,)]


def session_of(number, kernel, device, factor):
    """The runs of S0.faster as they are recorded, on another machine, with mapping slower by so much than reading into buffers."""
    for record in records_of(RECORDS[1]):
        if record["cell"]["experiment"] == "S0" and record["cell"]["name"] in ("mmap", "buffer"):
            walls = {"mmap": factor, "buffer": 1.0}
            for phase in record["phases"]:
                phase["wall_ns"] = int(1e8 * walls[record["cell"]["name"]])
            yield record | {"session": f"9-{number}", "machine": record["machine"] | {"kernel": kernel, "device": device}}


def test_a_verdict_that_flips_from_kernel_to_kernel_is_marked(command, tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    sides = [("6.10.1", "vda", 2.0), ("6.9.7", "vdb", 2.0), ("6.12", "vda", 0.5), ("6.13", "vda", 0.5), ("", "vda", 2.0)]
    (tmp_path / "records").mkdir()
    for number, side in enumerate(sides):
        with gzip.open(tmp_path / "records" / f"host{number}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(record) + "\n" for record in session_of(number, *side))
    (tmp_path / "records" / "host9.jsonl.gz").write_bytes(b"\x1f\x8b half of it")

    judged = fleet.judge(tmp_path / "records", tmp_path / "judged")
    database = fleet.database(tmp_path / "records" / "host0.jsonl.gz", judged)

    columns = "kernel, device, verdict, flips, beside[1].other"
    assert database.sql(f"SELECT {columns} FROM drift WHERE id = 'S0.faster'").fetchall() == [
        (None, "vd", "holds here", None, None),
        ("6.9.7", "vd", "holds here", None, None),
        ("6.10.1", "vd", "holds here", False, "6.9.7"),
        ("6.12", "vd", "does not hold here", True, "6.10.1"),
        ("6.13", "vd", "does not hold here", False, "6.12"),
    ]
    assert database.sql("SELECT source, figure FROM claims WHERE id = 'S0.faster' ORDER BY source").fetchall() == [
        ("host0", 2.0), ("host1", 2.0), ("host2", 0.5), ("host3", 0.5), ("host4", 2.0)
    ]  # fmt: skip
    document = json.loads(Path(judged.drift).read_text())
    assert (document["files"], document["unread"]) == (5, 1) and "host9" in document["unread_files"][0]["file"]
    with pytest.raises(majorfault.Error, match="none of 1 files of records can be read"):
        fleet.judge(tmp_path / "records" / "host9.jsonl.gz", tmp_path / "none")


def test_a_series_is_as_the_importer_of_otava_wants_it(command, tmp_path):
    # otava.importer.CsvImporter: of one branch, in the order of the file, times that can be read, a number in each line.
    (tmp_path / "records").mkdir()
    for number in range(12):
        with open(tmp_path / "records" / f"{number}.jsonl", "w") as file:
            for record in session_of(number, f"6.{number}.0", "vda", 2.0 if number < 6 else 3.0):
                file.write(json.dumps(record | {"began_unix_s": 1_700_000_000 + 86400 * number}) + "\n")

    judged = fleet.judge(tmp_path / "records", tmp_path / "judged")

    with open(judged.claims, newline="") as file:
        header, *lines = csv.reader(file)
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    series = [row for row in rows if row["branch"].startswith("S0.faster ext4/vd standard ")]
    assert len({row["branch"] for row in series}) == 1
    assert [int(row["time"]) for row in series] == [1_700_000_000 + 86400 * number for number in range(12)]
    assert [float(row["figure"]) for row in series] == pytest.approx([2.0] * 6 + [3.0] * 6)
    assert all(float(row["figure"]) is not None for row in rows if row["branch"])


def test_the_bench_of_memory_over_many_hosts_runs_each_step(command, tmp_path):
    # So few hosts show that the steps work; what 10 000 take is the bench's to say.
    pytest.importorskip("distributed", reason="distributed is not installed; pip install majorfault[fleet]")
    pytest.importorskip("duckdb", reason="duckdb is not installed; pip install majorfault[fleet]")
    bench = Path(__file__).parents[1] / "benches" / "fleet_memory.py"

    ran = subprocess.run([sys.executable, str(bench), "20", "80", "--folder", str(tmp_path)], capture_output=True, text=True, check=False, timeout=300)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "report --drift" in ran.stdout and "sweep" in ran.stdout
