#!/bin/sh
# Everything that is published, and a check of each: packages.sh [sdist] [any] [musl] [aarch64] (all), into target/packages.
#
#   sdist     the sources; a wheel is built from them alone, away from this folder, installed and used
#   any       the wheel for every other system: the import works, and a use says why not
#   musl      x86-64 with musl (musllinux_1_2): Alpine and the like, with the command as a static program
#   aarch64   64-bit ARM (manylinux_2_17), cross-compiled
#
# musl and aarch64 need their targets (rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-gnu) and zig as linker, which this
# installs into the environment of the tests (ziglang, 90 MB). What cannot be built here is said and skipped; a check that fails ends with 1.
# MAJORFAULT_PROFILE: release.
set -eu
cd "$(dirname "$0")"
target=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
profile=${MAJORFAULT_PROFILE:-release}
out=$target/packages
venv=$target/python-tests
mkdir -p "$out"
[ -x "$venv/bin/python" ] || python3 -m venv --system-site-packages "$venv"
python=$venv/bin/python
PATH=$venv/bin:$PATH
"$python" -m pip install --quiet --disable-pip-version-check "maturin>=1.8,<2"
work=$(mktemp -d)
trap 'rm -rf "$work" majorfault.data/scripts' EXIT

sdist() {
    rm -f "$out"/majorfault-*.tar.gz
    maturin sdist --out "$out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
    sources=$(ls "$out"/majorfault-*.tar.gz)
    "$python" -m venv "$work/sdist"
    # Away from the sources: what is missing in the archive must not be found here. The compiled crates are shared, to save minutes.
    (cd "$work" && CARGO_TARGET_DIR=$target/sdist MATURIN_PEP517_ARGS="--profile $profile" PIP_NO_BUILD_ISOLATION=1 \
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work/built" "$sources")
    "$work/sdist/bin/python" -m pip install --quiet --disable-pip-version-check "$work"/built/majorfault-*.whl
    (cd "$work" && "$work/sdist/bin/python" "$OLDPWD/tests/check_installed.py" works without-command)
    echo "sdist: $sources builds, installs and works"
}

any() {
    wheel=$(ls "$target"/wheels/majorfault-*-linux_*.whl "$target"/wheels/majorfault-*manylinux*.whl 2>/dev/null | head -1)
    if [ -z "$wheel" ]; then
        sh wheel.sh "$profile" "$target/wheels"
        wheel=$(ls "$target"/wheels/majorfault-*.whl | head -1)
    fi
    "$python" any_wheel.py "$wheel" "$out"
    "$python" -m venv "$work/any"
    "$work/any/bin/python" -m pip install --quiet --disable-pip-version-check "$out"/majorfault-*-py3-none-any.whl
    (cd "$work" && "$work/any/bin/python" "$OLDPWD/tests/check_installed.py" says-why)
    echo "any: $(ls "$out"/majorfault-*-py3-none-any.whl) imports and says why not"
}

# Whether zig and a target are there; says what is missing.
cross() {
    "$python" -m pip install --quiet --disable-pip-version-check ziglang >"$work/log" 2>&1 || {
        echo "SKIPPED $1: ziglang, the linker for other systems, cannot be installed: $(tail -1 "$work/log")"
        return 1
    }
    [ -d "$(rustc --print sysroot)/lib/rustlib/$2" ] || rustup target add "$2" >"$work/log" 2>&1 || {
        echo "SKIPPED $1: no standard library for $2: $(tail -1 "$work/log")"
        return 1
    }
}

musl() {
    cross musl x86_64-unknown-linux-musl || return 0
    # The command does not depend on any library of the system it runs on.
    mkdir -p majorfault.data/scripts
    if cargo build --quiet --locked --profile "$profile" --target x86_64-unknown-linux-musl -p majorfault-lab --bin majorfault >"$work/log" 2>&1; then
        [ "$profile" = dev ] && built=debug || built=$profile
        cp "$target/x86_64-unknown-linux-musl/$built/majorfault" majorfault.data/scripts/
        majorfault.data/scripts/majorfault list methods >/dev/null
        echo "musl: the command is a static program and runs here"
    else
        echo "musl: the command cannot be built, the wheel has none: $(grep -m1 '^error' "$work/log")"
        rm -rf majorfault.data/scripts
    fi
    rm -f "$out"/majorfault-*musllinux*.whl
    maturin build --locked --profile "$profile" --target x86_64-unknown-linux-musl --zig --compatibility musllinux_1_2 --out "$out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
    rm -rf majorfault.data/scripts
    "$python" tests/check_wheel.py "$out"/majorfault-*musllinux*.whl x86_64 musl
}

aarch64() {
    cross aarch64 aarch64-unknown-linux-gnu || return 0
    rm -f "$out"/majorfault-*aarch64*.whl
    maturin build --locked --profile "$profile" --target aarch64-unknown-linux-gnu --zig --compatibility manylinux_2_17 --out "$out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
    "$python" tests/check_wheel.py "$out"/majorfault-*aarch64*.whl aarch64 glibc
}

for one in ${*:-sdist any musl aarch64}; do
    case $one in
    sdist | any | musl | aarch64) "$one" ;;
    *) echo "packages.sh: $one is none of sdist, any, musl, aarch64" && exit 2 ;;
    esac
done
