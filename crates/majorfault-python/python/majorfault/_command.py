"""The command `majorfault`, and its documents as objects: doctor, compare, report."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ._errors import Error, Invalid, Missing

USAGE = 2
"""The command's exit code where it could not begin."""


def command() -> str:
    """The path of the command: the one that came with this package, else the one that is installed."""
    name = "majorfault"
    own = os.path.join(sysconfig.get_path("scripts"), name)
    found = own if os.access(own, os.X_OK) and not _is_python(own) else shutil.which(name)
    if found is None:
        missing = Missing("the command majorfault is not installed here; install a wheel of the package for Linux, or the command itself")
        missing.reason, missing.remedy = "no such command", "pip install majorfault"
        raise missing
    return found


def _is_python(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


class Document:
    """What the command said, as data, as a page, and as a table."""

    def __init__(self, data: dict[str, Any], page: str) -> None:
        self.data = data
        """The JSON document, whole; see `majorfault COMMAND --help`."""
        self.page = page
        """The page in HTML."""

    def rows(self) -> list[dict[str, Any]]:
        """One row for each line of the table."""
        raise NotImplementedError

    def df(self) -> Any:
        """The table as a frame of pandas."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_arrow(self) -> Any:
        """The table as one of pyarrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.rows())

    def _repr_html_(self) -> str:
        # In a frame of its own, so that neither style reaches the other.
        return f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="640" style="border:0"></iframe>'


class Comparison(Document):
    """What a comparison, or a report of its records, found."""

    @property
    def answers(self) -> list[str]:
        """The verdict of each session and workload, in a sentence."""
        return [summary["verdict"]["answer"] for summary in self.data["summaries"]]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each arm: its name, its state, and each figure with its interval."""
        rows = [_arm(summary, arm) for summary in self.data["summaries"] for arm in summary["arms"]]
        # Arms differ in what could be measured; a table has one set of columns.
        columns = dict.fromkeys(name for row in rows for name in row)
        return [dict.fromkeys(columns) | row for row in rows]

    def __repr__(self) -> str:
        return "\n".join(self.answers) or "nothing was compared"


def _arm(summary: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    row = {"session": summary["session"], "workload": summary["workload"]["name"], "arm": arm["arm"], "role": arm["role"]}
    row |= {"question": summary.get("question"), "state": arm["state"], "runs": arm["runs_used"]}
    for name, figure in ((arm["figures"] or {}) | {"ratio_to_best": arm["ratio_to_best"]}).items():
        low, high = (figure or {}).get("interval") or (None, None)
        row |= {name: (figure or {}).get("median"), f"{name}_low": low, f"{name}_high": high}
    return row


class Findings(Document, Sequence[dict[str, Any]]):
    """What the doctor found: a sequence of findings, the worst first. What could not be looked at is in `missing`."""

    def __len__(self) -> int:
        return len(self.data["findings"])

    def __getitem__(self, index: Any) -> Any:
        return self.data["findings"][index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.data["findings"])

    @property
    def missing(self) -> list[dict[str, Any]]:
        """What could not be looked at, each with reason and remedy: without it a finding may be absent."""
        return list(self.data["missing"])

    def rows(self) -> list[dict[str, Any]]:
        """One row for each finding, in plain texts."""
        return [{name: value if isinstance(value, (str, type(None))) else json.dumps(value) for name, value in one.items()} for one in self]

    def __repr__(self) -> str:
        said = [f"{one['severity']}: {one['what']}" for one in self] or ["nothing was found"]
        return "\n".join(said + [f"not looked at: {one['what']}: {one['reason']}" for one in self.missing])


def doctor(pid: int | None = None, seconds: float = 5.0, **options: Any) -> Findings:
    """Watches a process, by default this one, and says what costs it time or memory in mapped files, with evidence and remedies.

    Other threads go on meanwhile; this one waits. `options` are those of `majorfault doctor --help`, with underscores: `deep=True`.
    """
    data, page = _said("doctor", [str(os.getpid() if pid is None else pid)], {"for": f"{int(seconds * 1000)}ms"} | options)
    return Findings(data, page)


def compare(*paths: str | os.PathLike[str], **options: Any) -> Comparison:
    """Which access method is fastest for a file and a workload here, and why. Files are only read.

    `options` are those of `majorfault compare --help`, with underscores: `compare(path, bs="16k", method=["mmap", "uring"], memory="256m")`.
    """
    data, page = _said("compare", [os.fspath(path) for path in paths], options)
    return Comparison(data, page)


def report(*records: str | os.PathLike[str], **options: Any) -> Comparison:
    """The comparison that records of earlier runs hold: `.jsonl` or `.jsonl.gz`."""
    data, page = _said("report", [os.fspath(path) for path in records], options)
    return Comparison(data, page)


def arguments(options: dict[str, Any]) -> list[str]:
    """Options as they are typed.

    >>> arguments({"bs": "4k", "time_based": True, "method": ["mmap", "uring"], "quiet": False, "memory": None})
    ['--bs=4k', '--time-based', '--method=mmap', '--method=uring']
    """
    typed = []
    for name, value in options.items():
        if not name.replace("_", "").isalnum():
            raise Invalid(f"{name!r} is no option")
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                typed.append(flag)
            elif one is not None and one is not False:
                typed.append(f"{flag}={one}")
    return typed


def _said(word: str, places: list[str], options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Runs the command; its document and its page. Exit codes that are answers (no winner, a finding) are no errors."""
    with tempfile.TemporaryDirectory(prefix="majorfault-") as folder:
        page = os.path.join(folder, "page.html")
        # A path may begin with a dash; a process's number does not, and after two dashes it would be a program's name.
        end = [] if word == "doctor" else ["--"]
        typed = [command(), word, *arguments(options), "--json", f"--report={page}", *end, *places]
        ran = subprocess.run(typed, capture_output=True, text=True, errors="replace", check=False)
        try:
            data = json.loads(ran.stdout)
        except ValueError:
            sentence = ran.stderr.strip().removeprefix("error: ").removeprefix("majorfault: ") or f"majorfault {word} ended with {ran.returncode} and said nothing"
            raise (Invalid if ran.returncode == USAGE else Error)(sentence) from None
        text = ""
        if os.path.exists(page):
            with open(page, encoding="utf-8") as file:
                text = file.read()
        return data, text
