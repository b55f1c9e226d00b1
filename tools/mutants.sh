#!/bin/sh
# Plants small faults in a module, one at a time, and sees whether the tests fail (cargo-mutants). A fault that no test
# sees must stand in tools/mutants-survivors.md with its reason, else the exit code is 1.
#
# Works in a copy whose build stays warm, so that a mutant costs one incremental build of its crate and the module's own
# tests; only what survives these meets all unit tests of the crate.
set -eu

usage() {
    cat <<END
usage: tools/mutants.sh [--install] [--list] [--shard K/N] [MODULE...]
       tools/mutants.sh --at-once [--again] [--near] [MODULE...]
  --list       number of mutants of each module, without testing any
  --at-once    all mutants of a package in one build (tools/mutants-at-once.py, which needs Python's tree-sitter and
               tree-sitter-rust): a second a mutant, so that whole modules are tested
  --again      only those that survived the last time, with the tests of now
  --near       only the module's own tests, while tests are written
  --shard K/N  every Nth mutant, from the Kth (from 0) on: a sample of the module, or a part of it; two parts run at once in
               two directories (MUTANTS_DIR)
  --install    install cargo-mutants, where it is missing
modules: $(modules | awk '{ printf "%s ", $1 }')[all]
MUTANTS_DIR is where the copy is kept [$work]
END
}

# name, package, files below its src, its own tests, further test targets
modules() {
    cat <<END
stats       majorfault-lab  stats.rs                                stats::
gates       majorfault-lab  run/gates.rs                            run::
derive      majorfault-lab  report/derive.rs                        report::
verdict     majorfault-lab  report/verdict.rs                       report::
phases      majorfault-lab  report/phases.rs                        report::
summary     majorfault-lab  report/summary.rs                       report::
session     majorfault-lab  session.rs                              session::  --test=command
rules       majorfault-lab  doctor/rules/*.rs                       doctor::
assist      majorfault-lab  assist/*.rs                             assist::
outputs     majorfault-lab  outputs.rs,outputs/*.rs                 outputs::  --test=front_door
jobfile     majorfault-lab  jobfile.rs,jobfile/*.rs                 jobfile::
prefetch    majorfault      prefetch/*.rs                           prefetch::
pool        majorfault      pool/*.rs                               pool::
fault       majorfault      sys/fault.rs                            sys::
page_state  majorfault      sys/page_state.rs                       sys::      --test=page_state --test=page_state_schedules
END
}

# The sources as they are now. Only what differs is written: a new time stamp would build everything again.
copied() {
    git ls-files --cached --others --exclude-standard -- Cargo.toml Cargo.lock crates records docs kernel contrib | while read -r file; do
        [ -f "$file" ] || continue
        cmp -s "$file" "$work/$file" || { mkdir -p "$work/$(dirname "$file")" && cp "$file" "$work/$file"; }
    done
    (cd "$work" && find crates -name '*.rs') | while read -r file; do
        [ -f "$file" ] || rm "$work/$file"
    done
}

# Tests pass without a fault, asked once for each package; prints the longest time that a mutant's may take.
baseline() {
    [ ! -f "$work/limit.$package$more" ] || { cat "$work/limit.$package$more" && return; }
    began=$(date +%s)
    (cd "$work" && cargo test --quiet -p "$package" --lib $more) >"$work/baseline.log" 2>&1 || {
        cat "$work/baseline.log" >&2
        echo "the tests of $package fail without a planted fault" >&2
        exit 2
    }
    took=$(($(date +%s) - began))
    echo $((took * 3 > 30 ? took * 3 : 30)) | tee "$work/limit.$package$more"
}

# Runs what is left of the module's mutants; the words are further arguments. Mutants that are caught are no failure here.
mutants() {
    (cd "$work" && cargo mutants --in-place --no-shuffle --colors never --baseline skip --no-times -p "$package" \
        $globs ${shard:+--shard "$shard" --sharding round-robin} --output "$out" "$@") || [ $? -le 3 ]
}

count() { cat "$out/mutants.out/$1.txt" 2>/dev/null | wc -l; }

# Survivors without line and column, so that they are the same after an edit elsewhere in the file.
keys() { sed -E 's/^([^:]+):[0-9]+:[0-9]+: /\1: /' "$out/mutants.out/missed.txt" | sort; }

# Survivors that the list of reasons has not, or not so often.
unexplained() {
    sed -nE 's/^- `(.+)`: .+$/\1/p' "$home/tools/mutants-survivors.md" | sort >"$work/explained"
    keys | comm -23 - "$work/explained"
}

module() {
    set -f
    out=$work/out/$name
    globs=""
    for file in $(echo "$files" | tr , ' '); do
        globs="$globs -f crates/$package/src/$file"
    done
    if [ "$list" = yes ]; then
        printf '%-11s %5d\n' "$name" "$(mutants --list | wc -l)"
        return
    fi
    # As arguments of cargo, so that these targets alone are built; what stands after -- is for running them.
    targets=$(printf -- "--cargo-arg=%s " --lib $more)
    rm -rf "$out" && mkdir -p "$out"
    limit=$(baseline)
    began=$(date +%s)
    mutants --timeout "$limit" --cargo-arg=--lib -- "$near" >"$out/near.log" 2>&1
    total=$(mutants --list | wc -l)
    unviable=$(count unviable) timeouts=$(count timeout)
    if [ "$(count missed)" -gt 0 ]; then
        mutants --iterate --timeout "$limit" $targets >"$out/all.log" 2>&1
        timeouts=$((timeouts + $(count timeout)))
    fi
    missed=$(count missed)
    seconds=$(($(date +%s) - began))
    printf '%-11s %7d %7d %9d %9d %5d.%d\n' "$name" $((total - missed - unviable - timeouts)) "$missed" "$unviable" \
        "$timeouts" $((seconds / (total > 0 ? total : 1))) $((seconds * 10 / (total > 0 ? total : 1) % 10))
    unexplained | sed 's/^/    not explained: /' >>"$work/unexplained"
}

home=$(cd "$(dirname "$0")/.." && pwd)
work=${MUTANTS_DIR:-/var/tmp/majorfault-mutants}
list=no shard="" install=no wanted="" once=""
while [ $# -gt 0 ]; do
    case $1 in
        --list) list=yes ;;
        --install) install=yes ;;
        --at-once) once="$once --tests" ;;
        --again | --near) once="$once $1" ;;
        --shard) shard=${2:?--shard needs K/N} && shift ;;
        -h | --help) usage && exit 0 ;;
        -*) usage >&2 && exit 2 ;;
        *) wanted="$wanted $1 " ;;
    esac
    shift
done
for name in $wanted; do
    modules | grep -q "^$name " || [ "$name" = all ] || { echo "there is no module $name" >&2 && usage >&2 && exit 2; }
done
if ! cargo mutants --version >/dev/null 2>&1; then
    [ "$install" = yes ] || { echo "cargo-mutants is missing; tools/mutants.sh --install installs it" >&2 && exit 2; }
    cargo install cargo-mutants --locked
fi

cd "$home"
mkdir -p "$work"
# Without debug information and with a fast linker a build takes half as long. The target directory is the copy's own.
export CARGO_TARGET_DIR="$work/target" CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 CARGO_INCREMENTAL=1
export RUST_BACKTRACE=0 PROPTEST_CASES="${PROPTEST_CASES:-64}"
if command -v mold >/dev/null 2>&1; then
    export RUSTFLAGS="-C link-arg=-fuse-ld=mold"
fi
wanted() {
    modules | while read -r name rest; do
        case $wanted in "" | *" $name "* | *" all "*) echo "$name $rest" ;; esac
    done
}
if [ -n "$once" ]; then
    wanted | python3 "$home/tools/mutants-at-once.py" --home "$home" --work "$work" $once
    exit
fi
copied
: >"$work/unexplained"
rm -f "$work"/limit.*
[ "$list" = yes ] || printf '%-11s %7s %7s %9s %9s %7s\n' module killed missed unviable timeouts s/mutant
wanted | while read -r name package files near more; do
    module </dev/null
done
cat "$work/unexplained"
[ ! -s "$work/unexplained" ]
