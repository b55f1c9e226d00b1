#!/usr/bin/env python3
"""Programs of the distribution with and without the agent, or with blocks in files: the same exit code, outputs and files.

    tools/agent-programs.py [--command target/debug/majorfault] [--plant] [--spill DIR] [NAME...]

Each task of tools/agent-programs.txt runs three times in a fresh directory under `majorfault run`: twice limited only, and once with
--agent, or with --spill DIR and blocks of 64 KiB or more in files. What differs between the first two is no task to compare by, and is listed apart. --plant adds two tasks that must differ, so that
this check is checked. Needs the right to limit memory (root); nothing is installed, and programs that are not here are listed.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = "/var/tmp/majorfault-agent-programs"
PLANTS = {
    "the agent": [("plant-variable", "echo $LD_PRELOAD | wc -c"), ("plant-thread", "ls /proc/self/task | wc -l")],
    "blocks in files": [("plant-variable", "echo $LD_PRELOAD | wc -c"), ("plant-mapping", "grep -c majorfault_spill /proc/self/maps")],
}
PROGRAM = '#include <stdio.h>\n#include <stdlib.h>\n#define _(x) x\nint main(int argc, char **argv) {\n  int n = argc > 1 ? atoi(argv[1]) : 2, s = 0;\n  for (int i = 0; i < n; i++) s += i * i;\n  printf(_("%d\\n"), s);\n  return 0;\n}\n'
ASSEMBLY = ".globl _start\n_start:\n  mov $60, %eax\n  mov $42, %edi\n  syscall\n"
JAVA = """public class Hello {
  public static void main(String[] a) throws Exception {
    long[] sum = {0};
    Thread[] all = new Thread[4];
    for (int t = 0; t < 4; t++) { all[t] = new Thread(() -> { for (int i = 0; i < 100000; i++) synchronized (sum) { sum[0] += i; } }); all[t].start(); }
    for (Thread t : all) t.join();
    System.out.println(sum[0]);
  }
}
"""


def make_world():
    """The directory of a task, the same each time."""
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(f"{WORK}/tree/deep/deeper")
    dice = random.Random(7)
    texts = {
        "words.txt": "".join(f"w{number}\n" for number in range(2000)),
        "table.csv": "".join(f"row{row},{row * row % 997},{row / 7:.3f}\n" for row in range(300)),
        "data.json": json.dumps([{"n": number, "s": str(number)} for number in range(500)]),
        "page.xml": "<a>" + "<b c='d'>e</b>" * 50 + "</a>\n",
        "prog.c": PROGRAM,
        "sum.s": ASSEMBLY,
        "Hello.java": JAVA,
        "script.m4": "define(`twice', `$1$1')dnl\ntwice(`ab') $A\nifelse(1, 1, `yes', `no')\n",
        "reads.fa": ">one\n" + "".join(dice.choice("ACGT") for _ in range(20000)) + "\n",
    }
    texts.update({f"tree/file{number}": f"x{number}\n" * number * 100 for number in range(5)})
    texts.update({f"tree/deep/deeper/file{number}": f"y{number}\n" for number in range(3)})
    for name, text in texts.items():
        with open(f"{WORK}/{name}", "w") as file:
            file.write(text)
    with open(f"{WORK}/random.bin", "wb") as file:
        file.write(dice.randbytes(5000))
    for folder, folders, files in os.walk(WORK, topdown=False):
        for name in files + folders:
            os.utime(f"{folder}/{name}", (10**9, 10**9))


def left_files():
    """What the task left behind, by content."""
    found = {}
    for folder, _, files in os.walk(WORK):
        for name in files:
            path = f"{folder}/{name}"
            if os.path.islink(path) or not os.path.isfile(path):
                found[path] = "no file"
                continue
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).hexdigest()
    return found


def run(command, task, way):
    """The exit code, both outputs and the files of a task that is run this way."""
    make_world()
    # The same for all, whoever starts this.
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": WORK, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
    limited = [command, "run", "--memory", "2g", "-q", *way, "--", "sh", "-c", task]
    try:
        done = subprocess.run(limited, cwd=WORK, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return {"exit code": "none within 120 s"}
    # What majorfault says before it begins is not the program's.
    errors = b"".join(line for line in done.stderr.splitlines(True) if not line.startswith(b"majorfault: "))
    return {"exit code": done.returncode, "output": done.stdout, "errors": errors, "files": left_files()}


def tasks(path, names):
    """Tasks by program, and programs that are left out with the reason."""
    chosen, left_out = [], []
    with open(path) as file:
        entries = re.findall(r"^(?!#)(\S+): (.*(?:\n(?!\S+: |#).*)*)", file.read(), re.M)
    for name, task in entries:
        program = name.split("-numpy")[0].split("-multi")[0]
        if names and name not in names:
            continue
        if task.startswith("# "):
            left_out.append((name, task[2:].strip()))
        elif shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin") is None:
            left_out.append((name, "not installed here"))
        else:
            chosen.append((name, task))
    return chosen, left_out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--command", default=os.path.join(HERE, "../target/debug/majorfault"))
    parser.add_argument("--list", default=os.path.join(HERE, "agent-programs.txt"))
    parser.add_argument("--plant", action="store_true", help="add tasks that must differ")
    parser.add_argument("--spill", metavar="DIR", help="with blocks in files there, instead of the agent")
    parser.add_argument("names", nargs="*", help="only these programs")
    given = parser.parse_args()
    command = os.path.abspath(given.command)
    chosen, left_out = tasks(given.list, given.names)
    different, failed = [], 0
    plain = ["--no-advice"]
    way = ["--spill", given.spill, "--spill-from", "64k"] if given.spill else ["--agent"]
    what = "blocks in files" if given.spill else "the agent"
    plants = PLANTS[what] if given.plant else []
    print(f"| program | exit code | output, bytes | errors, bytes | with {what} |\n| --- | --- | --- | --- | --- |", flush=True)
    for name, task in chosen + plants:
        first, second, helped = (run(command, task, options) for options in (plain, plain, way))
        unsteady = [part for part in first if first[part] != second.get(part)]
        if unsteady:
            left_out.append((name, f"differs by itself: {', '.join(unsteady)}"))
            continue
        wrong = [part for part in first if first[part] != helped.get(part)]
        failed += first["exit code"] in (125, 126, 127)
        told = "the same" if not wrong else f"DIFFERENT: {', '.join(wrong)}"
        if wrong:
            different.append((name, [(part, first[part], helped.get(part)) for part in wrong if part != "files"]))
        print(f"| `{name}` | {first['exit code']} | {len(first.get('output', b''))} | {len(first.get('errors', b''))} | {told} |", flush=True)
    shutil.rmtree(WORK, ignore_errors=True)
    compared = len(chosen) + len(plants) - sum(why.startswith("differs") for _, why in left_out)
    print(f"\n{compared} tasks compared, {len(different)} differ; {failed} did not start")
    for name, parts in different:
        for part, without, with_agent in parts:
            print(f"  {name}: {part}\n    without {without!r}\n    with    {with_agent!r}"[:1500])
    print(f"\n{len(left_out)} left out:" if left_out else "")
    for name, why in left_out:
        print(f"  {name}: {why}")
    sys.exit(1 if different or failed else 0)


if __name__ == "__main__":
    main()
