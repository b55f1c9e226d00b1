#!/bin/sh
# Builds a wheel with the command in it: wheel.sh PROFILE FOLDER [TARGET TAG] (release by default; target/wheels; this machine's C library). Needs maturin.
# With a target (x86_64-unknown-linux-musl) and a tag (musllinux_1_2) it is built by zig, for other machines than this one: tools/wheels.sh has those
# that we know, and their tools. MAJORFAULT_INTERPRETER chooses a Python to build for alone (free-threaded ones, which have no stable ABI);
# MAJORFAULT_COMMAND=no leaves the command out. Exit code 3: the command cannot be built for the target.
set -eu
cd "$(dirname "$0")"
profile=${1:-release}
root=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
folder=${2:-$root/wheels}
target=${3:-}
tag=${4:-}
[ "$profile" = dev ] && built=debug || built=$profile
# maturin installs what is in majorfault.data/scripts beside Python.
mkdir -p "$folder"
trap 'rm -rf majorfault.data/scripts' EXIT
# The tag's oldest C library, where it says one: manylinux_2_17.
case $tag in manylinux_*) glibc=.$(echo "${tag#manylinux_}" | tr _ .) ;; *) glibc="" ;; esac
if [ "${MAJORFAULT_COMMAND:-yes}" != no ]; then
    if [ -z "$target" ]; then
        # For tests what the tests of the workspace built already.
        [ "$profile" = dev ] && packages="--workspace --all-features" || packages="-p majorfault-lab"
        # shellcheck disable=SC2086
        cargo build --quiet --locked --profile "$profile" $packages --bin majorfault
    else
        built=$target/$built
        # The linker strips: binutils' strip knows this machine's processor alone.
        cargo zigbuild --quiet --locked --profile "$profile" --config "profile.$profile.strip=\"symbols\"" --config "profile.$profile.debug=false" --target "$target$glibc" -p majorfault-lab --bin majorfault || exit 3
    fi
    mkdir -p majorfault.data/scripts
    command=majorfault.data/scripts/majorfault
    # Rust's own tool strips for every processor, where it is installed; binutils' for this one.
    objcopy=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-objcopy
    "$objcopy" --strip-all "$root/$built/majorfault" "$command" 2>/dev/null || strip -o "$command" "$root/$built/majorfault" 2>/dev/null ||
        cp "$root/$built/majorfault" "$command"
    chmod 755 "$command"
fi
set -- --locked --profile "$profile" --out "$folder"
[ -z "$target" ] || set -- "$@" --target "$target" --zig --compatibility "$tag"
[ -z "${MAJORFAULT_INTERPRETER:-}" ] || set -- "$@" --interpreter "$MAJORFAULT_INTERPRETER"
maturin build "$@" >"$root/maturin.log" 2>&1 || {
    cat "$root/maturin.log"
    exit 1
}
