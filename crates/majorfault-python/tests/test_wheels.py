"""What is built for other machines is looked at before it is given away: needs_of_wheel.py, and the words of tools/wheels.sh."""

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from majorfault import _core

PACKAGE = Path(__file__).resolve().parents[1]
WHEELS = PACKAGE.parents[1] / "tools" / "wheels.sh"
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(_core.__file__, "majorfault/_core.abi3.so")
    return path


def looked_at(wheel, *words):
    return subprocess.run([sys.executable, PACKAGE / "needs_of_wheel.py", wheel, *words], capture_output=True, text=True)


def test_a_wheel_that_is_what_its_name_says_is_told_with_its_needs(wheel):
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("needs an extension built for glibc")
    said = looked_at(wheel, platform.machine(), "glibc-99.0")

    assert said.returncode == 0, said.stdout + said.stderr
    assert "the command is not in it" in said.stdout
    assert f"_core.abi3.so: {platform.machine()}, " in said.stdout and "libc.so.6" in said.stdout and "from glibc 2." in said.stdout


@pytest.mark.parametrize(
    ("processor", "library", "told"),
    [
        (OTHER.get(platform.machine(), "x86_64"), "glibc-99.0", f"is for {platform.machine()}"),
        (platform.machine(), "glibc-2.1", "asks for GLIBC_2."),
        (platform.machine(), "musl", "asks for libc.so.6"),
    ],
)
def test_a_wheel_that_needs_more_than_its_name_says_is_refused(wheel, processor, library, told):
    said = looked_at(wheel, processor, library)

    assert said.returncode == 1 and told in said.stdout, said.stdout + said.stderr


def test_what_is_no_program_is_told(tmp_path):
    for name, content, told in [("other.txt", b"", "the extension is not in it"), ("_core.abi3.so", b"text", "it is no ELF file"), ("_core.abi3.so", b"\x7fELF\x02\x01" + bytes(9), "requires a buffer")]:
        with zipfile.ZipFile(tmp_path / "bad.whl", "w") as archive:
            archive.writestr(name, content)

        said = looked_at(tmp_path / "bad.whl", "x86_64", "musl")

        assert said.returncode == 1 and told in said.stdout, said.stdout + said.stderr


def test_a_kind_of_wheel_that_there_is_not_is_told_with_those_there_are():
    for words, told in [(["macos"], 'there is no kind "macos"; there are: manylinux_x86_64 '), (["--out"], "--out needs a value")]:
        said = subprocess.run(["sh", WHEELS, *words], capture_output=True, text=True)

        assert said.returncode == 2 and said.stderr.startswith(told), said.stderr


def tools(tmp_path, **scripts):
    """An environment with tools that do as they are told, where tools/wheels.sh looks for its own."""
    folder = tmp_path / "target" / "wheel-tools" / "bin"
    folder.mkdir(parents=True)
    for name, script in {"rustup": "exit 0", "python": "exit 0", "maturin": "exit 1", "cargo-zigbuild": "exit 1", **scripts}.items():
        (folder / name.replace("_", "-")).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name.replace("_", "-")).chmod(0o755)
    return os.environ | {"CARGO_TARGET_DIR": str(tmp_path / "target"), "MAJORFAULT_PYTHON": sys.executable}


def wheels(environment, *words):
    return subprocess.run(["sh", WHEELS, *words], env=environment, capture_output=True, text=True)


def test_what_cannot_be_built_is_told_and_fails_where_it_was_named(tmp_path):
    environment = tools(tmp_path, rustup="echo 'error: no such target'; exit 1")
    environment["MAJORFAULT_FREE_THREADED"] = "/there/is/none"

    named, all_of_them = wheels(environment, "musllinux_aarch64"), wheels(environment)

    told = "NOT BUILT musllinux_aarch64: Rust's aarch64-unknown-linux-musl cannot be had (error: no such target); add it with: rustup target add aarch64-unknown-linux-musl\n"
    assert (named.returncode, named.stdout) == (1, told), named.stderr
    assert all_of_them.returncode == 0 and told in all_of_them.stdout, all_of_them.stderr
    assert "NOT BUILT free-threaded: /there/is/none is no free-threaded interpreter; name one" in all_of_them.stdout
    assert "NOT BUILT any: no wheel is there to make it of" in all_of_them.stdout


def test_a_wheel_whose_command_cannot_be_built_is_without_it_and_says_so(tmp_path, wheel):
    made = f'cp {wheel} "$(echo "$@" | sed "s/.*--out //; s/ .*//")/majorfault-0.1.0-cp311-abi3-musllinux_1_2_{platform.machine()}.whl"'
    kind = f"musllinux_{platform.machine()}"

    said = wheels(tools(tmp_path, cargo_zigbuild="echo 'error: the linker is gone' >&2; exit 101", maturin=made), kind)

    assert f"WITHOUT THE COMMAND {kind}: error: the linker is gone; all that was said is in " in said.stdout, said.stdout + said.stderr
    # The extension is for glibc, and is not taken for musl's.
    assert "asks for libc.so.6" in said.stdout and f"NOT BUILT {kind}: the wheel needs more than its name says" in said.stdout
    assert [path.suffix for path in (tmp_path / "target" / "dist").iterdir()] == [".refused"]
    assert said.returncode == 1 and not (PACKAGE / "majorfault.data" / "scripts").exists()
