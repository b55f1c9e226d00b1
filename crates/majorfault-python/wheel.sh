#!/bin/sh
# Builds the wheel with the command in it: wheel.sh PROFILE FOLDER (release by default; target/wheels). Needs maturin.
set -eu
cd "$(dirname "$0")"
profile=${1:-release}
target=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
folder=${2:-$target/wheels}
cargo build --quiet --locked --profile "$profile" -p majorfault-lab --bin majorfault
[ "$profile" = dev ] && built=$target/debug/majorfault || built=$target/$profile/majorfault
# maturin installs what is in majorfault.data/scripts beside Python.
mkdir -p majorfault.data/scripts
trap 'rm -rf majorfault.data/scripts' EXIT
strip -o majorfault.data/scripts/majorfault "$built" 2>/dev/null || cp "$built" majorfault.data/scripts/majorfault
maturin build --locked --profile "$profile" --out "$folder" >"$target/maturin.log" 2>&1 || {
    cat "$target/maturin.log"
    exit 1
}
