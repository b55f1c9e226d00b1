#!/bin/sh
# Every check of the Python package: a wheel is built and installed into an environment below target/, then the package's types, its
# tests and its documentation's examples. Says what was skipped and why. `test.sh --frames` also installs the libraries of
# tests/requirements-frames.txt (a gigabyte) and Apache Otava; those that are there are tested in any case.
# MAJORFAULT_PYTHON chooses the interpreter, MAJORFAULT_FUZZ the number of fuzzed calls (1500).
set -eu
cd "$(dirname "$0")"
target=$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
venv=$target/python-tests
base=""
for candidate in ${MAJORFAULT_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then base=$candidate && break; fi
done
if [ -z "$base" ]; then
    echo "SKIPPED the Python package: no Python 3.11 or later with venv; install python3 and python3-venv"
    exit 0
fi
[ -x "$venv/bin/python" ] || "$base" -m venv --system-site-packages "$venv"
python=$venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt >"$target/python-tests.log" 2>&1 || {
    tail -3 "$target/python-tests.log"
    echo "SKIPPED the Python package: what its tests need cannot be installed (tests/requirements.txt)"
    exit 0
}
# For sweeps and tables of records: not needed by the rest, so that their tests are skipped where it cannot be had.
"$python" -m pip install --quiet --disable-pip-version-check -r tests/requirements-fleet.txt >"$target/python-tests.log" 2>&1 || {
    tail -3 "$target/python-tests.log"
    echo "SKIPPED majorfault.fleet: what its tests need cannot be installed (tests/requirements-fleet.txt)"
}
if [ "${1:-}" = --frames ]; then
    "$python" -m pip install --quiet --disable-pip-version-check -r tests/requirements-frames.txt
    # Apart, because it asks for versions of its own.
    [ -x "$target/otava/bin/otava" ] || { "$base" -m venv "$target/otava" && "$target/otava/bin/pip" install --quiet --disable-pip-version-check apache-otava; } ||
        echo "SKIPPED change points: apache-otava cannot be installed"
fi
if [ -x "$target/otava/bin/otava" ]; then export MAJORFAULT_OTAVA="$target/otava/bin/otava"; fi
rm -rf "$target/wheels"
PATH=$venv/bin:$PATH sh wheel.sh dev "$target/wheels"
"$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$target"/wheels/majorfault-*.whl
"$python" -m mypy --no-error-summary
# Away from the sources, so that the installed package is meant.
here=$PWD
(cd "$target/wheels" && MYPYPATH= "$python" -m mypy.stubtest majorfault._core --allowlist "$here/tests/stubtest-allowlist.txt")
"$python" -m pytest -q -rs tests
installed=$("$python" -c 'import os, majorfault; print(os.path.dirname(majorfault.__file__))')
"$python" -m pytest -q -rs --import-mode=importlib --rootdir "$installed" -c /dev/null -p no:cacheprovider --doctest-modules --ignore-glob='*/torch.py' \
    "$installed/__init__.py" "$installed/_calls.py" "$installed/_ahead.py" "$installed/_load.py" "$installed/_take.py" "$installed/_files.py" \
    "$installed/numpy.py" "$installed/fleet.py"
