#!/bin/sh
# Wheels for other machines than this one: tools/wheels.sh [--out FOLDER] [--profile NAME] [--without-command] [KIND...] (target/dist; release; all kinds).
#
#   manylinux_x86_64, manylinux_aarch64    for glibc 2.17 and later
#   musllinux_x86_64, musllinux_aarch64    for musl 1.2 and later
#   free-threaded                          for one interpreter without the lock (MAJORFAULT_FREE_THREADED, else python3.14t), x86-64
#   any                                    for other systems: the import works, a use says why not; made of the first wheel that is there
#   sdist                                  the sources, without the command
#
# Each wheel has the command of the same target in it, and is looked at: the processor, the C library that it needs, and where it can run here, a smoke
# test in a new environment (tests/smoke.py). MAJORFAULT_AARCH64 is a command that runs a Python of that processor here (an emulator with its root),
# MAJORFAULT_MUSL one that runs a Python for musl.
# What cannot be built is told with its reason and a remedy, a command alone as well (the wheel is then without it); the exit code is 1 where a kind that was named is among them. Installs zig, cargo-zigbuild and
# maturin into an environment below target/, and Rust's targets by rustup.
set -eu
cd "$(dirname "$0")/.."
root=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
out=$root/dist
profile=release
kinds=""
all="manylinux_x86_64 manylinux_aarch64 musllinux_x86_64 musllinux_aarch64 free-threaded any sdist"
while [ $# -gt 0 ]; do
    case $1 in
    --without-command) export MAJORFAULT_COMMAND=no ;;
    --out | --profile)
        [ $# -gt 1 ] || { echo "$1 needs a value" >&2 && exit 2; }
        [ "$1" = --out ] && out=$2 || profile=$2
        shift
        ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    *)
        case " $all " in
        *" $1 "*) kinds="$kinds $1" ;;
        *) echo "there is no kind \"$1\"; there are: $all" >&2 && exit 2 ;;
        esac
        ;;
    esac
    shift
done
is_named=${kinds:+yes}
mkdir -p "$out"
out=$(cd "$out" && pwd)
log=$root/wheels.log
failed=""

# not_built KIND REASON REMEDY
not_built() {
    echo "NOT BUILT $1: $2; $3"
    failed="$failed $1"
}

tools=$root/wheel-tools
python=${MAJORFAULT_PYTHON:-python3}
have_tools() {
    [ -x "$tools/bin/maturin" ] && [ -x "$tools/bin/cargo-zigbuild" ] && "$tools/bin/python" -c 'import ziglang' 2>/dev/null
}
if ! have_tools; then
    "$python" -m venv "$tools" >"$log" 2>&1 && "$tools/bin/python" -m pip install --quiet 'maturin>=1.8,<2' cargo-zigbuild ziglang >>"$log" 2>&1 || true
fi
PATH=$tools/bin:$PATH

first_error() {
    grep -m 1 -E '^error|failed' "$log" || tail -1 "$log"
}

wheel_of() { # INTERFACE TAG: the newest wheel for both; maturin may put an older name of the same tag before it
    # shellcheck disable=SC2086
    ls -t "$out"/majorfault-*-$1-*"$2"*.whl 2>/dev/null | head -1
}

# looked_at WHEEL PROCESSOR GLIBC: what it needs, told in one line; fails where that is more than the tag promises.
looked_at() {
    "$python" crates/majorfault-python/needs_of_wheel.py "$@"
}

smoke() { # WHEEL COMMAND...: in a folder of its own, by another Python
    wheel=$1
    shift
    place=$(mktemp -d "$root/smoke.XXXXXX")
    "$python" -m zipfile -e "$wheel" "$place"
    PYTHONPATH=$place PYTHONDONTWRITEBYTECODE=1 "$@" crates/majorfault-python/tests/smoke.py not-run && code=0 || code=1
    rm -rf "$place"
    return $code
}

in_new_environment() { # WHEEL INTERPRETER
    place=$(mktemp -d "$root/smoke.XXXXXX")
    "$2" -m venv "$place" && "$place/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$1" &&
        "$place/bin/python" crates/majorfault-python/tests/smoke.py && code=0 || code=1
    rm -rf "$place"
    return $code
}

build() { # KIND TARGET TAG PROCESSOR C-LIBRARY [INTERFACE]
    kind=$1
    interface=${6:-abi3}
    if ! have_tools; then
        not_built "$kind" "no maturin, cargo-zigbuild and ziglang ($(tail -1 "$log"))" "install them with: pip install maturin cargo-zigbuild ziglang"
        return
    fi
    if ! rustup target add "$2" >"$log" 2>&1; then
        not_built "$kind" "Rust's $2 cannot be had ($(tail -1 "$log"))" "add it with: rustup target add $2"
        return
    fi
    code=0
    sh crates/majorfault-python/wheel.sh "$profile" "$out" "$2" "$3" >"$log" 2>&1 || code=$?
    if [ $code = 3 ]; then
        echo "WITHOUT THE COMMAND $kind: $(first_error); all that was said is in $log.command"
        mv "$log" "$log.command"
        code=0
        MAJORFAULT_COMMAND=no sh crates/majorfault-python/wheel.sh "$profile" "$out" "$2" "$3" >"$log" 2>&1 || code=$?
    fi
    if [ $code != 0 ]; then
        not_built "$kind" "$(first_error)" "all that was said is in $log"
        return
    fi
    wheel=$(wheel_of "$interface" "$3_$4")
    echo "built $wheel"
    if ! looked_at "$wheel" "$4" "$5"; then
        mv "$wheel" "$wheel.refused"
        not_built "$kind" "the wheel needs more than its name says" "see above; it is $wheel.refused"
    fi
}

for kind in ${kinds:-$all}; do
    case $kind in
    manylinux_x86_64)
        build "$kind" x86_64-unknown-linux-gnu manylinux_2_17 x86_64 glibc-2.17
        wheel=$(wheel_of abi3 manylinux_2_17_x86_64)
        case "$failed " in *" $kind "*) ;; *)
            if [ "$(uname -m)" = x86_64 ]; then
                in_new_environment "$wheel" "$python" || not_built "$kind" "its smoke test failed" "see above"
            else echo "not run here: $wheel"; fi
            ;;
        esac
        ;;
    manylinux_aarch64)
        build "$kind" aarch64-unknown-linux-gnu manylinux_2_17 aarch64 glibc-2.17
        wheel=$(wheel_of abi3 manylinux_2_17_aarch64)
        case "$failed " in *" $kind "*) ;; *)
            if [ -n "${MAJORFAULT_AARCH64:-}" ]; then
                # shellcheck disable=SC2086
                smoke "$wheel" $MAJORFAULT_AARCH64 || not_built "$kind" "its smoke test failed" "see above"
            else echo "not run here, MAJORFAULT_AARCH64 names no Python of that processor: $wheel"; fi
            ;;
        esac
        ;;
    musllinux_x86_64 | musllinux_aarch64)
        processor=${kind#musllinux_}
        build "$kind" "$processor-unknown-linux-musl" musllinux_1_2 "$processor" musl
        wheel=$(wheel_of abi3 "musllinux_1_2_$processor")
        case "$failed " in *" $kind "*) ;; *)
            if [ -n "${MAJORFAULT_MUSL:-}" ] && [ "$(uname -m)" = "$processor" ]; then
                # shellcheck disable=SC2086
                smoke "$wheel" $MAJORFAULT_MUSL || not_built "$kind" "its smoke test failed" "see above"
            else echo "not run here, MAJORFAULT_MUSL names no Python for that C library and processor: $wheel"; fi
            ;;
        esac
        ;;
    free-threaded)
        interpreter=${MAJORFAULT_FREE_THREADED:-python3.14t}
        if ! "$interpreter" -c 'import sysconfig, sys; sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))' 2>/dev/null; then
            not_built "$kind" "$interpreter is no free-threaded interpreter" "name one by MAJORFAULT_FREE_THREADED (uv python install 3.14t)"
            continue
        fi
        MAJORFAULT_INTERPRETER=$interpreter
        export MAJORFAULT_INTERPRETER
        build "$kind" x86_64-unknown-linux-gnu manylinux_2_17 x86_64 glibc-2.17 'cp*t'
        unset MAJORFAULT_INTERPRETER
        case "$failed " in *" $kind "*) ;; *) in_new_environment "$(wheel_of 'cp*t' manylinux_2_17_x86_64)" "$interpreter" || not_built "$kind" "its smoke test failed" "see above" ;; esac
        ;;
    any)
        wheel=$(wheel_of abi3 linux)
        if [ -z "$wheel" ]; then
            not_built "$kind" "no wheel is there to make it of" "build one first: $0 manylinux_x86_64 any"
        else
            echo "built $("$python" crates/majorfault-python/any_wheel.py "$wheel" "$out")"
        fi
        ;;
    sdist)
        if ! command -v maturin >/dev/null; then
            not_built "$kind" "no maturin" "install it with: pip install maturin"
        elif ! (cd crates/majorfault-python && maturin sdist --out "$out") >"$log" 2>&1; then
            not_built "$kind" "$(tail -1 "$log")" "all that was said is in $log"
        else
            sources=$(ls -t "$out"/majorfault-*.tar.gz | head -1)
            echo "built $sources"
            # As pip builds it for those who have no wheel, but with the maturin that is here.
            place=$(mktemp -d "$root/from-sources.XXXXXX")
            if ! "$tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --wheel-dir "$place" "$sources" >"$log" 2>&1; then
                not_built "$kind" "no wheel can be built from it ($(first_error))" "all that was said is in $log"
            elif ! in_new_environment "$(ls "$place"/*.whl)" "$python"; then
                not_built "$kind" "the smoke test of what was built from it failed" "see above"
            fi
            rm -rf "$place"
        fi
        ;;
    esac
done
[ -z "$failed" ] || [ -z "$is_named" ] || exit 1
