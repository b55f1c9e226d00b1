#!/bin/sh
# Runs the unit tests of the library's unsafe code where a tool watches the memory, and says what ran.
#
#     sh tools/sanitize.sh [address|valgrind]
#
# address: AddressSanitizer, which needs a nightly toolchain (no Miri: mappings and io_uring are system calls that it does not
# know). Finds use after free and bytes past the end of heap blocks; a use after munmap is a crash. valgrind: memcheck, on the
# stable build; made for uses after unmap and values never set, too, of which only a use after free was planted. Neither knows Rust's rules of aliasing: those hold
# by the reasons in docs/design.md and by tests/compile_fail.
#
# First a program with a planted fault is run, which the tool must find.
set -eu
cd "$(dirname "$0")/.."
tool=${1:-valgrind}
# Tests that end processes by signals, fill the table of guards, or race 50 000 truncations are for the plain run.
tests='sys::view sys::claims sys::pages sys::map sys::direct sys::ring map:: access::mmap pool::pointers pool::tests'
skip='--skip fifty_thousand --skip truncations_under --skip siblings_never'
planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
cat > "$planted/fault.rs" <<'RUST'
fn main() {
    let block = vec![1u8; 4096];
    let gone = block.as_ptr();
    drop(std::hint::black_box(block));
    let value = unsafe { gone.add(100).read_volatile() };
    if value == 0 { println!("zero") } else { println!("other") }
}
RUST
case $tool in
address)
    rustc +nightly -Zsanitizer=address -o "$planted/fault" "$planted/fault.rs"
    if "$planted/fault" >/dev/null 2>&1; then echo "the planted fault was not found"; exit 1; fi
    RUSTFLAGS=-Zsanitizer=address cargo +nightly test -p majorfault --all-features --lib \
        --target x86_64-unknown-linux-gnu --target-dir target/sanitize -- $tests $skip
    ;;
valgrind)
    watch='valgrind --quiet --error-exitcode=99 --exit-on-first-error=yes'
    rustc -g -o "$planted/fault" "$planted/fault.rs"
    if $watch "$planted/fault" >/dev/null 2>&1; then echo "the planted fault was not found"; exit 1; fi
    # valgrind has no userfaultfd and few calls of io_uring: what it lacks is said to be missing and skipped by the tests.
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$watch" cargo test -p majorfault --all-features --lib -- \
        --test-threads 1 $tests $skip
    ;;
*) echo "usage: tools/sanitize.sh [address|valgrind]"; exit 2 ;;
esac
echo "$tool: the planted fault was found; these tests ran clean: $tests"
