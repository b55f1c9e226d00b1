"""The same measurements on many machines: run by a Dask cluster, kept as records, queried with DuckDB.

    from distributed import Client
    from majorfault import fleet

    swept = fleet.sweep(["compare /data/rows.bin --bs 16k"], Client("scheduler:8786"), "records")
    fleet.parquet("records/*.jsonl.gz", "records.parquet")
    judged = fleet.judge("records/*.jsonl.gz", "judged")
    fleet.database("records.parquet", judged).sql("FROM drift WHERE flips").show()

`pip install majorfault[fleet]` brings what it needs: distributed, duckdb, pyarrow. A sweep needs the package on each worker. Ways without
Dask (Slurm, Ansible, Kubernetes) are in `contrib/fleet`.
"""

from __future__ import annotations

import glob
import gzip
import itertools
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from ._command import USAGE, command
from ._errors import Error, Invalid, Missing

RECORDING = ("compare", "reproduce")
"""The commands that leave records."""

Job = str | Sequence[str]
Records = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass
class Ran:
    """What became of a job on a host."""

    host: str
    job: tuple[str, ...]
    code: int | None
    """The command's exit code; None where it was not begun, or its host was lost."""
    said: str
    """The end of what it said on standard error, or why there is no code."""
    runs: int
    """Records that it left."""

    @property
    def ok(self) -> bool:
        """Whether it ran; no winner, or a claim that does not hold, is an answer."""
        return self.code in (0, 1)


@dataclass
class Swept:
    """What a sweep left: a row for each job on each host, none is left out."""

    folder: str
    """Where the records are: HOST.jsonl.gz."""
    rows: list[Ran] = field(default_factory=list)

    @property
    def failed(self) -> list[Ran]:
        """The rows that did not run."""
        return [row for row in self.rows if not row.ok]

    def __repr__(self) -> str:
        hosts, runs = len({row.host for row in self.rows}), sum(row.runs for row in self.rows)
        said = [f"{runs} runs of {hosts} hosts in {self.folder}"]
        return "\n".join(said + [f"{row.host}: {shlex.join(row.job)}: {row.said}" for row in self.failed])


def words(job: Job) -> tuple[str, ...]:
    """A job as the words of a command line.

    >>> words("compare '/data/my rows' --bs 16k")
    ('compare', '/data/my rows', '--bs', '16k')
    >>> words("doctor 1")
    Traceback (most recent call last):
    majorfault._errors.Invalid: 'doctor 1': a job of a sweep begins with compare or reproduce, which leave records
    """
    typed = tuple(shlex.split(job)) if isinstance(job, str) else tuple(os.fspath(word) for word in job)
    if not typed or typed[0] not in RECORDING:
        raise Invalid(f"{shlex.join(typed)!r}: a job of a sweep begins with {' or '.join(RECORDING)}, which leave records")
    kept = [word for word in typed if word == "--records" or word.startswith("--records=")]
    if kept:
        raise Invalid(f"{shlex.join(typed)!r}: the sweep decides where records go; leave {kept[0]} out")
    return typed


def hosts(client: Any) -> dict[str, str]:
    """The hosts of a Dask cluster, each with the address of one of its workers."""
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    except TypeError:  # before distributed 2025.3 it tells of all
        workers = client.scheduler_info()["workers"]
    found: dict[str, str] = {}
    for address in sorted(workers):
        found.setdefault(workers[address]["host"], address)
    return found


def sweep(jobs: Iterable[Job], client: Any, folder: str | os.PathLike[str] = "records", *, timeout: float | None = None, tool: str | None = None, at_once: int = 1000) -> Swept:
    """Runs the jobs on each host of a Dask cluster, one after another, and collects their records: `folder/HOST.jsonl.gz`.

    A job is the command's arguments: `"compare /data/rows.bin --bs 16k"`. Each host has one task, on one of its workers, and holds a lock of the
    cluster's meanwhile, so that two sweeps do not measure each other. Other work of the cluster is not kept away: sweep when there is none.
    `timeout`: seconds for each job; `tool`: the command's path on the hosts (by default the one in the package); `at_once`: hosts that measure at the
    same time, for each of which Dask keeps some 12 KiB here.

    A host that is lost, or a job that fails, is a row of the answer, and the others go on. The records of one host are in memory at a time. Records
    that `folder` has of an earlier sweep are kept, and added to.
    """
    listed = [words(job) for job in jobs]
    if at_once < 1:
        raise Invalid(f"at_once={at_once}: one host at a time is the least")
    if not listed:
        raise Invalid("a sweep needs a job, such as 'compare /data/rows.bin'")
    try:
        from distributed import as_completed
    except ImportError:
        missing = Missing("a sweep needs Dask's distributed; pip install majorfault[fleet]")
        missing.reason, missing.remedy = "distributed is not installed", "pip install majorfault[fleet]"
        raise missing from None
    found = hosts(client)
    if not found:
        raise Invalid("the cluster has no workers; start one on each host: dask worker ADDRESS")
    os.makedirs(folder, exist_ok=True)
    waiting = iter(found.items())
    under_way: dict[Any, str] = {}

    def begin(count: int) -> Iterator[Any]:
        for host, address in itertools.islice(waiting, count):
            future = client.submit(_on_host, host, listed, timeout, tool, workers=[address], allow_other_workers=False, retries=0, pure=False)
            under_way[future] = host
            yield future

    def ended() -> Iterator[tuple[str, list[Ran], bytes]]:
        completed = as_completed(list(begin(at_once)))
        for future in completed:
            host = under_way.pop(future)
            try:
                rows, records = future.result()
            except Exception as error:  # the host's, whatever it is: the others' records are worth keeping
                rows, records = [Ran(host, job, None, f"{type(error).__name__}: {error}", 0) for job in listed], b""
            finally:
                future.release()
            completed.update(list(begin(1)))
            yield host, rows, records

    swept = _collect(folder, ended())
    swept.rows.sort(key=lambda row: (row.host, listed.index(row.job)))
    return swept


def _collect(folder: str | os.PathLike[str], ended: Iterable[tuple[str, list[Ran], bytes]]) -> Swept:
    """Keeps the records of hosts as they come; of each host its rows stay in memory."""
    swept = Swept(os.fspath(folder))
    for host, rows, records in ended:
        if records:
            # Members of gzip files may follow each other.
            with open(os.path.join(folder, _file_name(host) + ".jsonl.gz"), "ab") as file:
                file.write(records)
        swept.rows += rows
    return swept


def _file_name(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip(".") or "host"


def _on_host(host: str, jobs: list[tuple[str, ...]], timeout: float | None, tool: str | None) -> tuple[list[Ran], bytes]:
    """The task of a host: all jobs, and their records, compressed."""
    from distributed import Lock

    with Lock(f"majorfault-{host}"):
        return run(host, jobs, timeout, tool)


def run(host: str, jobs: Iterable[tuple[str, ...]], timeout: float | None = None, tool: str | None = None) -> tuple[list[Ran], bytes]:
    """Runs the jobs here, one after another; what became of them, and their records, compressed."""
    rows, packed = [], b""
    with tempfile.TemporaryDirectory(prefix="majorfault-fleet-") as folder:
        path = os.path.join(folder, "records.jsonl")
        for job in jobs:
            code, said = _run(job, path, timeout, tool)
            records = b""
            if os.path.exists(path):
                with open(path, "rb") as file:
                    records = file.read()
                os.unlink(path)
            # A command that was ended in the middle of a line leaves a part of one.
            whole = records[: records.rfind(b"\n") + 1]
            packed += gzip.compress(whole, mtime=0) if whole else b""
            rows.append(Ran(host, job, code, said, whole.count(b"\n")))
    return rows, packed


def _run(job: tuple[str, ...], records: str, timeout: float | None, tool: str | None) -> tuple[int | None, str]:
    try:
        # Before the words that are given: what follows "--" is a program's.
        typed = [tool or command(), job[0], f"--records={records}", *job[1:]]
        ran = subprocess.run(typed, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return None, f"ended after {timeout:g} s (timeout)"
    except (OSError, Error) as error:
        return None, str(error)
    said = ran.stderr.decode(errors="replace").strip()[-2000:]
    if ran.returncode == USAGE and not said:
        said = "the command could not begin"
    return ran.returncode, said


def _paths(records: Records) -> list[str]:
    given = [records] if isinstance(records, (str, os.PathLike)) else list(records)
    named = [path for one in given for path in sorted(glob.glob(os.fspath(one))) or [os.fspath(one)]]
    found = [path for one in named for path in (_below(one) if os.path.isdir(one) else [one])]
    lacking = [path for path in found if not os.path.exists(path)]
    if lacking or not found:
        raise Invalid(f"there are no records {', '.join(lacking) or 'named'}")
    return found


def _below(folder: str) -> list[str]:
    return sorted(os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith((".jsonl", ".jsonl.gz")))


def _lines(path: str) -> Iterator[dict[str, Any]]:
    opened: Any = gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
    with opened as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise Invalid(f"{path}:{number} is no record: {error}") from None


def row(source: str, record: dict[str, Any]) -> dict[str, Any]:
    """A record as a row of the table `runs`; records.sql makes the same."""
    trial, machine, outcome, cell = record["trial"], record["machine"], record["outcome"], record.get("cell") or {}
    kind, arm = next(iter(trial["arm"].items()))
    is_reason = isinstance(outcome, dict)
    word, why = next(iter(outcome.items())) if is_reason else (outcome, None)
    threads = record.get("threads") or []
    figures, phases = record.get("figures"), record.get("phases") or []
    return {
        "source": source,
        **{name: record[name] for name in ("format", "tool", "session", "began_unix_s")},
        **{name: machine.get(name) for name in ("kernel", "architecture", "cpu", "cpus")},
        "machine_memory_bytes": machine.get("memory_bytes"),
        **{name: machine.get(name) for name in ("filesystem", "device", "read_ahead_kb", "rotational", "thp", "lru", "cgroup", "hypervisor")},
        "arm_kind": kind,
        "arm": arm.get("name") if isinstance(arm, dict) else None,
        "settings": _pairs(record.get("settings")),
        "workload": trial["workload"]["name"],
        "workload_given": _pairs(trial["workload"].get("given")),
        **{name: trial.get(name) for name in ("direction", "block_bytes", "threads", "iodepth")},
        "size_bytes": trial["data"].get("size_bytes"),
        **{name: trial.get(name) for name in ("memory_bytes", "cache", "seed", "repetition")},
        "experiment": cell.get("experiment"),
        "cell": cell.get("name"),
        "scale": cell.get("scale"),
        "question": record.get("question"),
        "outcome": word,
        "outcome_reason": why.get("reason") if isinstance(why, dict) else why,
        "accesses": sum(thread["accesses"] for thread in threads),
        "bytes": sum(thread["bytes"] for thread in threads),
        "spoiled_by": [gate["name"] for gate in record.get("gates") or [] if gate["finding"] == "spoiled"],
        "figures": None if figures is None else list(figures.items()),
        "phases": [phase | {"counters": list(phase["counters"].items())} for phase in phases],
    }


def _pairs(given: dict[str, Any] | None) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in (given or {}).items()]


def schema() -> Any:
    """The columns of the table `runs`, as a schema of pyarrow."""
    import pyarrow as pa

    text, number, short = pa.string(), pa.uint64(), pa.uint32()
    pairs, counts = pa.map_(text, text), pa.map_(text, number)
    phase = pa.struct([("name", text), ("began_ns", number), ("wall_ns", number), ("counters", counts)])
    columns = dict.fromkeys(["source"], text) | {"format": short, "tool": text, "session": text, "began_unix_s": number}
    columns |= {"kernel": text, "architecture": text, "cpu": text, "cpus": short, "machine_memory_bytes": number, "filesystem": text}
    columns |= {"device": text, "read_ahead_kb": number, "rotational": pa.bool_(), "thp": text, "lru": text, "cgroup": text}
    columns |= {"hypervisor": text, "arm_kind": text, "arm": text, "settings": pairs, "workload": text, "workload_given": pairs}
    columns |= {"direction": text, "block_bytes": number, "threads": short, "iodepth": short, "size_bytes": number}
    columns |= {"memory_bytes": number, "cache": text, "seed": number, "repetition": short, "experiment": text, "cell": text}
    columns |= {"scale": text, "question": text, "outcome": text, "outcome_reason": text, "accesses": number, "bytes": number}
    columns |= {"spoiled_by": pa.list_(text), "figures": counts, "phases": pa.list_(phase)}
    return pa.schema(list(columns.items()))


def parquet(records: Records, path: str | os.PathLike[str], *, batch: int = 500) -> int:
    """Writes records (paths or patterns of `.jsonl`, `.jsonl.gz`) as one Parquet file, the table `runs`; returns its rows.

    `batch` rows are in memory at a time. Timelines and latencies of single accesses stay in the records, which remain the source of truth.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, rows, written = schema(), [], 0
    paths = _paths(records)
    with pq.ParquetWriter(os.fspath(path), columns, compression="zstd") as file:
        for one in paths:
            source = re.sub(r"(\.jsonl)?(\.gz)?$", "", os.path.basename(one))
            for record in _lines(one):
                rows.append(row(source, record))
                if len(rows) >= batch:
                    file.write_table(pa.Table.from_pylist(rows, schema=columns))
                    written, rows = written + len(rows), []
        if rows:
            file.write_table(pa.Table.from_pylist(rows, schema=columns))
    return written + len(rows)


def sql() -> str:
    """The views of `records.sql`, for DuckDB."""
    return resources.files("majorfault").joinpath("records.sql").read_text("utf-8")


@dataclass
class Judged:
    """Published claims judged from records, as files: what `judge` has written."""

    folder: str
    """Where they are."""

    @property
    def claims(self) -> str:
        """Every judged claim of every session, one a line, oldest first (comma-separated values)."""
        return os.path.join(self.folder, "claims.csv")

    @property
    def drift(self) -> str:
        """Claims against kernels, devices and file systems (JSON, docs/drift.schema.json)."""
        return os.path.join(self.folder, "drift.json")


def judge(records: Records, folder: str | os.PathLike[str]) -> Judged:
    """Judges published claims by these records (paths, patterns, folders), each session by itself, and lays the verdicts beside each other, as `majorfault
    report --drift --json --csv` does. The files are in `folder`.

    A host whose file cannot be read is told in `drift.json` (`unread_files`), and the others are judged; where none can be read, it is an Error.
    """
    judged = Judged(os.fspath(folder))
    os.makedirs(folder, exist_ok=True)
    with open(judged.drift + ".part", "wb") as file:
        typed = [command(), "report", "--drift", "--json", "--csv", judged.claims, *_paths(records)]
        ran = subprocess.run(typed, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False)
    if os.path.getsize(judged.drift + ".part") == 0:
        os.unlink(judged.drift + ".part")
        raise Error(ran.stderr.decode(errors="replace").strip() or f"majorfault report ended with {ran.returncode} and said nothing")
    os.replace(judged.drift + ".part", judged.drift)
    return judged


def database(records: Records, judged: Judged | str | os.PathLike[str] | None = None) -> Any:
    """A connection of DuckDB with the views `runs` and `phases` over records, or over a Parquet file that `parquet` made of them; and with `claims` and
    `drift`, where `judged` is what `judge` gave, or its folder.
    """
    import duckdb

    paths = _paths(records)
    is_parquet = [path.endswith(".parquet") for path in paths]
    if any(is_parquet) and not all(is_parquet):
        raise Invalid("name records or Parquet files, not both: a run would be counted twice")
    connection = duckdb.connect()
    texts = {name: text for text, name in re.findall(r"(CREATE OR REPLACE VIEW (\w+) AS\n.*?;\n)", sql(), re.S)}
    connection.execute("SET VARIABLE records = ?::VARCHAR[]", [paths])
    if all(is_parquet):
        del texts["records"]
        texts["runs"] = "CREATE OR REPLACE VIEW runs AS SELECT * FROM read_parquet(getvariable('records'))"
    if judged is None:
        del texts["claims"], texts["drift"]
    else:
        files = judged if isinstance(judged, Judged) else Judged(os.fspath(judged))
        connection.execute("SET VARIABLE claims = ?::VARCHAR", [files.claims])
        connection.execute("SET VARIABLE drift = ?::VARCHAR", [files.drift])
    for text in texts.values():
        connection.execute(text)
    return connection
