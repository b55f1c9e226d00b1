"""All small faults of cargo-mutants in one build, one of them awake at a time: what `tools/mutants.sh --at-once` runs.

    tools/mutants.sh --at-once [--again] [MODULE...]

Reads the wanted lines of the table in tools/mutants.sh from stdin. Each function with faults becomes a `match` whose arms are its body with
one of the faults, and whose last arm is its body as it is; MAJORFAULT_PLANTED says which arm runs. So a fault costs a run of the tests
and no build. Faults whose arm does not compile are left out; those in what the compiler computes get a build of their own.

Needs `pip install tree-sitter tree-sitter-rust`.
"""

import argparse
import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))

SWITCH = """
/// The fault that is awake; 0 is none.
#[doc(hidden)]
pub fn planted_fault() -> u32 {
    static PLANTED: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *PLANTED.get_or_init(|| std::env::var("MAJORFAULT_PLANTED").ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}
"""


ROOTS = {"crates/majorfault/src/lib.rs", "crates/majorfault-lab/src/lib.rs"}


# One test that fails is enough. The option is not stable, so RUSTC_BOOTSTRAP must be set where it is used.
FIRST_FAILURE = ["--quiet", "-Z", "unstable-options", "--fail-fast"]


class Fault:
    """One of cargo-mutants' list."""

    def __init__(self, number, module, listed):
        self.number, self.module, self.listed = number, module, listed
        self.name, self.file = listed["name"], listed["file"]
        self.alone = False  # no arm can be made of it
        self.broken = False  # its arm does not compile
        self.settled = False  # what became of it is known from the last time

    def key(self):
        """Its name without line and column, as in tools/mutants-survivors.md."""
        return self.file + ": " + self.name.split(": ", 1)[1]


def modules(lines):
    for line in lines:
        name, package, files, near, *more = line.split()
        globs = [f"crates/{package}/src/{file}" for file in files.split(",")]
        yield {"name": name, "package": package, "globs": globs, "near": near, "more": more}


def listed(home, module):
    globs = [word for glob in module["globs"] for word in ("-f", glob)]
    command = ["cargo", "mutants", "--list", "--json", "-p", module["package"], *globs]
    found = json.loads(subprocess.run(command, cwd=home, check=True, capture_output=True).stdout)
    # A file that is a module of two targets is listed twice.
    return list({fault["name"]: fault for fault in found}.values())


class Source:
    """A file whose functions become `match`es of their faults."""

    def __init__(self, text):
        self.bytes = text.encode()
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line.encode()) + 1)
        self.tree = PARSER.parse(self.bytes)

    def at(self, place):
        line = self.lines[place["line"] - 1]
        return self.starts[place["line"] - 1] + len(line[: place["column"] - 1].encode())

    def span(self, fault):
        span = fault.listed["span"]
        return self.at(span["start"]), self.at(span["end"])

    def body(self, fault):
        """Where the body of the outermost function, or of the outermost closure of a constant, around a fault begins and ends; none
        where the fault is in what the compiler computes."""
        begin, end = self.span(fault)
        node = self.tree.root_node
        while node is not None and node.type not in ("function_item", "closure_expression"):
            node = next((it for it in node.children if it.start_byte <= begin and end <= it.end_byte), None)
        if node is None or any(it.type == "function_modifiers" and b"const" in it.text for it in node.children):
            return None
        body = node.child_by_field_name("body")
        return (body.start_byte, body.end_byte) if body.start_byte <= begin and end <= body.end_byte else None

    def alone(self, fault):
        """The text with this one fault."""
        begin, end = self.span(fault)
        return self.bytes[:begin] + fault.listed["replacement"].encode() + self.bytes[end:]

    def with_faults(self, faults):
        """The text with an arm for each fault, and the lines of each arm."""
        by_body = {}
        for fault in faults:
            body = self.body(fault)
            fault.alone = body is None
            if body:
                by_body.setdefault(body, []).append(fault)
        text, arms, done = bytearray(), [], 0
        # A signal's stack has no room for the variables of all arms, so each gets a frame of its own.
        begins, ends = (b"(|| ", b")()") if b'extern "C" fn' in self.bytes else (b"", b"")
        for (begin, end), members in sorted(by_body.items()):
            text += self.bytes[done:begin] + b"{ match crate::planted_fault() {\n"
            for fault in members:
                first = text.count(b"\n") + 1
                changed_begin, changed_end = self.span(fault)
                body = self.bytes[begin:changed_begin] + fault.listed["replacement"].encode() + self.bytes[changed_end:end]
                text += b"%d => " % fault.number + begins + body + ends + b",\n"
                arms.append((first, text.count(b"\n"), fault))
            text += b"_ => " + begins + self.bytes[begin:end] + ends + b",\n} }"
            done = end
        return (bytes(text) + self.bytes[done:]).decode(), arms


COPIED = ["Cargo.toml", "Cargo.lock", "crates", "records", "docs", "kernel", "contrib"]


def write(path, content):
    """Only what differs: a new time stamp would build everything again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy(home, work, but):
    """The sources as they are now, except those that get faults."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *COPIED]
    files = subprocess.run(command, cwd=home, check=True, capture_output=True, text=True).stdout.split("\n")
    files = {file for file in files if (home / file).is_file()}
    for file in files - but:
        write(work / file, (home / file).read_bytes())
    for file in (work / "crates").glob("**/*.rs"):
        if str(file.relative_to(work)) not in files:
            file.unlink()


def plant(work, faults, texts):
    """The sources with every fault that compiles; returns the lines of each arm by file."""
    arms = {}
    by_file = {}
    for fault in faults:
        if not (fault.broken or fault.alone or fault.settled):
            by_file.setdefault(fault.file, []).append(fault)
    for file in {fault.file for fault in faults}:
        text, arms[file] = Source(texts[file]).with_faults(by_file.get(file, []))
        write(work / file, text.encode())
    return arms


def build(work, package, more):
    """The test programs by target, or the places of what does not compile."""
    command = ["cargo", "test", "--no-run", "--message-format=json", "-p", package, "--lib", *more]
    env = os.environ | {"RUSTFLAGS": os.environ.get("RUSTFLAGS", "") + " --cap-lints=allow"}
    result = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    programs, places = {}, []
    for line in result.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            programs[message["target"]["name"]] = message["executable"]
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            places.append((list(lines_of(message["message"])), message["message"]["rendered"]))
    if result.returncode != 0 and not places:
        sys.exit(result.stderr)
    return programs, places


def lines_of(message):
    """File and line of each span, outermost expansions included, the primary ones first."""
    for span in sorted(message["spans"], key=lambda it: not it["is_primary"]):
        while span:
            yield span["file_name"], span["line_start"]
            span = (span.get("expansion") or {}).get("span")


def built(home, work, faults, texts, package, more):
    copy(home, work, set(texts) | ROOTS)
    for file in ROOTS:
        write(work / file, (home / file).read_bytes() + SWITCH.encode())
    while True:
        arms = plant(work, faults, texts)
        programs, places = build(work, package, more)
        if not places:
            return kept(work, programs)
        before = sum(fault.broken for fault in faults)
        for lines, rendered in places:
            hits = [fault for file, line in lines for first, last, fault in arms.get(file, []) if first <= line <= last]
            if hits:
                hits[0].broken = True
        broken = sum(fault.broken for fault in faults)
        print(f"  {broken} faults do not compile", file=sys.stderr, flush=True)
        if broken == before:
            sys.exit("".join(rendered for _, rendered in places))


def kept(work, programs):
    """Copies of the programs, which stay whatever is built next."""
    for target, program in programs.items():
        copied = work / "programs" / target
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(Path(program).read_bytes())
        copied.chmod(0o755)
        programs[target] = str(copied)
    return programs


def judged_alone(fault, texts, work, suites, folder):
    """As `judged`, in a build of its own."""
    for file, text in texts.items():
        write(work / file, Source(text).alone(fault) if file == fault.file else text.encode())
    programs, places = build(work, fault.module["package"], fault.module["more"])
    if places:
        return "unviable"
    now = [(programs[Path(program).name], words, limit) for program, words, limit in suites]
    return judged(Fault(0, fault.module, fault.listed), now, folder)


def limits():
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(program, words, number, folder, limit):
    """Whether the tests pass with this fault: "passed", "failed", "timeout"."""
    env = os.environ | {"MAJORFAULT_PLANTED": str(number), "CARGO_MANIFEST_DIR": str(folder), "RUSTC_BOOTSTRAP": "1"}
    child = subprocess.Popen(
        [program, *words, *FIRST_FAILURE], cwd=folder, env=env, preexec_fn=limits,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        return "passed" if child.wait(limit) == 0 else "failed"
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return "timeout"


def judged(fault, suites, folder):
    for program, words, limit in suites:
        result = run(program, words, fault.number, folder, limit)
        if result != "passed":
            return result
    return "missed"


def suites(programs, module, folder, known, is_near):
    """Near tests first, then all unit tests, then further targets; each with three times the time that it takes without a fault,
    which is `known` where another module of the package had it."""
    library = programs[module["package"].replace("-", "_")]
    wanted = [(library, [module["near"]])]
    if not is_near:
        wanted += [(library, [])] + [(programs[word.removeprefix("--test=")], []) for word in module["more"]]
    found = []
    for program, words in wanted:
        if (program, *words) not in known:
            began = time.monotonic()
            # Tests that fail now and then without a fault would kill what they do not see.
            for _ in range(3 if words else 1):
                if run(program, words, 0, folder, 1800) != "passed":
                    sys.exit(f"{program} {words} fails without a planted fault")
            known[(program, *words)] = 20 + (time.monotonic() - began) * (1 if words else 3)
        found.append((program, words, known[(program, *words)]))
    return found


def explained(home):
    lines = (home / "tools/mutants-survivors.md").read_text().splitlines()
    return Counter(line[3:].split("`: ")[0] for line in lines if line.startswith("- `"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="only those that survived, or were not run, the last time")
    parser.add_argument("--near", action="store_true", help="the module's own tests only, while tests are written")
    parser.add_argument("--most", type=int, help="no more than so many of each module, drawn by chance")
    parser.add_argument("--tests", action="store_true", help="further test targets, too")
    given = parser.parse_args()
    home, work = given.home, given.work
    lock = open(work / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    wanted = list(modules(line for line in sys.stdin if line.strip()))
    reasons = explained(home)
    print(f"{'module':11} {'tested':>7} {'killed':>7} {'timeouts':>9} {'missed':>7} {'explained':>10} {'unviable':>9} {'killed %':>9}")
    without_reason = []
    for package in dict.fromkeys(module["package"] for module in wanted):
        mine = [module for module in wanted if module["package"] == package]
        if not given.tests:
            for module in mine:
                module["more"] = []
        faults = []
        for module in mine:
            faults += [Fault(0, module, one) for one in listed(home, module)]
        for number, fault in enumerate(faults):
            fault.number = number + 1
        more = list(dict.fromkeys(word for module in mine for word in module["more"]))
        settle(work, faults, given.again)
        # As they are now: the list of faults counts their lines.
        texts = {file: (home / file).read_text() for file in {fault.file for fault in faults}}
        programs = built(home, work, faults, texts, package, more)
        known_limits = {}
        for module in mine:
            without_reason += tested(module, faults, texts, programs, work, given, reasons, known_limits)
    for key in without_reason:
        print(f"    not explained: {key}")
    sys.exit(1 if without_reason else 0)


def before_now(work, module, is_again):
    """Where the results of a module are kept, and those of the last time."""
    file = work / f"at-once.{module['name']}.json"
    return file, json.loads(file.read_text()) if is_again and file.exists() else {}


def settle(work, faults, is_again):
    """Faults that were killed, or do not compile, are so again: tests are only added."""
    for fault in faults:
        _, before = before_now(work, fault.module, is_again)
        fault.settled = before.get(fault.name) in ("failed", "timeout", "unviable")


def tested(module, faults, texts, programs, work, given, reasons, known_limits):
    folder = work / "crates" / module["package"]
    results_file, before = before_now(work, module, given.again)
    found = suites(programs, module, folder, known_limits, given.near)
    results, survivors = {}, []
    mine = [fault for fault in faults if fault.module is module]
    # The order of chance, so that those tested by the time of a stop are a fair sample.
    random.Random(1).shuffle(mine)
    tests = 0
    for fault in mine:
        if fault.settled:
            result = before[fault.name]
        elif given.most and tests >= given.most:
            continue
        elif fault.broken:
            result = "unviable"
        elif fault.alone:
            result = judged_alone(fault, texts, work, found, folder)
        else:
            result = judged(fault, found, folder)
        tests += result != "unviable"
        results[fault.name] = result
        if result == "missed":
            survivors.append(fault)
        results_file.write_text(json.dumps(before | results, indent=1))
    results_file.write_text(json.dumps(results, indent=1))
    counts = Counter(results.values())
    tally = Counter(fault.key() for fault in survivors)
    left = tally - reasons
    all_tested = counts["failed"] + counts["timeout"] + counts["missed"]
    killed = counts["failed"] + counts["timeout"]
    share = 100 * killed / max(all_tested, 1)
    print(
        f"{module['name']:11} {all_tested:7} {counts['failed']:7} {counts['timeout']:9} {counts['missed']:7} "
        f"{counts['missed'] - left.total():10} {counts['unviable'] + counts['alone']:9} {share:9.1f}"
        + ("" if len(results) == len(mine) else f"  {len(results)} of {len(mine)}, drawn by chance"),
        flush=True,
    )
    for fault in survivors:
        print(f"    {fault.name}", file=sys.stderr, flush=True)
    return list(left.elements())


if __name__ == "__main__":
    main()
