#!/bin/sh
# Every check of this project, in the order in which a failure is cheapest. Installs the system packages that the tests
# need where it may; otherwise says which are missing, and the tests that need them list themselves as skipped.
set -eu
cd "$(dirname "$0")"

began=$(date +%s)
# Long work shows progress: what begins, and how many seconds the whole has taken so far.
step() {
    echo "== $(($(date +%s) - began)) s: $*"
}

# Nothing is built twice where everything is built once: what would make the second build faster costs time and room.
if [ -n "${CI:-}" ]; then export CARGO_INCREMENTAL=0; fi

missing=""
for pair in fio:fio chromium:chromium /usr/bin/python3:python3 sqlite3:sqlite3 redis-server:redis-server; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
for module in lmdb numpy; do
    /usr/bin/python3 -c "import $module" >/dev/null 2>&1 || missing="$missing python3-$module"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing:$missing"
        # The tests start redis-server themselves: Debian's package must not start a service (policy-rc.d(8)).
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            { echo '#!/bin/sh' && echo 'exit 101 # majorfault test.sh'; } >"$policy" && chmod +x "$policy"
        fi
        # shellcheck disable=SC2086
        { apt-get update && apt-get install -y --no-install-recommends $missing; } >/dev/null 2>&1 ||
            echo "could not install:$missing; tests that need them are listed as skipped"
        ! grep -qs 'majorfault test.sh' "$policy" || rm "$policy"
    else
        echo "missing:$missing; install them with: apt-get install$missing"
    fi
fi
# The tracepoint tlb:tlb_flush is counted where tracefs is mounted; only root can do that.
if [ "$(id -u)" = 0 ] && [ ! -d /sys/kernel/tracing/events ]; then
    mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || echo "no tracefs: the tracepoint tests are skipped"
fi

step "style and mistakes"
cargo fmt --check
# Compiled by a build script, and so no target of cargo's.
rustfmt --check --edition 2024 crates/majorfault-lab/agent/lib.rs crates/majorfault-lab/policy/lib.rs crates/majorfault-lab/spill/lib.rs
cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
# As users build the library: without its internals.
cargo clippy -p majorfault --all-targets --locked -- -D warnings
step "the oldest Rust, licences, advisories"
# With the oldest Rust it is for. Clippy knows when parts of std came; only a build knows the language.
if cargo +1.85 --version >/dev/null 2>&1; then
    cargo +1.85 check -p majorfault --features async --locked --target-dir "${CARGO_TARGET_DIR:-target}/oldest"
else
    echo "no Rust 1.85: the library is not built with it; install it with: rustup toolchain install 1.85 --profile minimal"
fi
if command -v cargo-deny >/dev/null 2>&1; then
    cargo deny --offline check licenses bans sources
    # The advisories are a repository elsewhere; without a network, an earlier copy of it is asked, where there is one.
    if cargo deny fetch db >/dev/null 2>&1 || ls -d "${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/advisory-db-* >/dev/null 2>&1; then
        cargo deny check --disable-fetch advisories
    else
        echo "advisories: https://github.com/RustSec/advisory-db cannot be fetched, so they are not checked"
    fi
else
    echo "missing: cargo-deny (cargo install cargo-deny --locked); licences, sources and advisories are not checked"
fi
step "tests"
log=${CARGO_TARGET_DIR:-target}/tests.log
mkdir -p "$(dirname "$log")"
cargo test --workspace --all-features --locked -- --show-output >"$log" 2>&1 || {
    # The failed tests' own words last, where nobody has to look for them; what the others said is in the log.
    grep -E '^error' "$log" || true
    sed -n '/^failures:/,/^test result: FAILED/p' "$log"
    echo "the whole output is in $log"
    exit 1
}
grep '^test result' "$log"
grep SKIPPED "$log" || echo "no test was skipped"
step "documentation"
cargo doc --workspace --all-features --no-deps --locked --quiet
step "the Python package"
# The Python package: a wheel, its types and its tests; what was skipped is listed there.
timeout 600 sh crates/majorfault-python/test.sh
# The first thing that a user runs: answers right, records written, gates alive, page made. What neighbours on this machine
# spoil is no failure; what we spoil is. With `test.sh --release` as a user builds it, which takes minutes more; do that before a release.
# Else with the packages and features of above, so that nothing is built again.
what="--workspace --all-features"
if [ "${1:-}" = --release ]; then what="--release -p majorfault-lab"; fi
step "the first comparison of a user ($what)"
# shellcheck disable=SC2086
cargo test $what --locked --test first_run -- --ignored
step "all is well"
