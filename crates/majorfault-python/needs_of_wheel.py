#!/usr/bin/env python3
"""What the programs in a wheel need: needs_of_wheel.py WHEEL PROCESSOR C-LIBRARY (x86_64 or aarch64; glibc-2.17 or musl).

Reads the extension and the command as ELF files, by themselves: no tool of the other processor is needed. Tells their processor and the libraries that
they ask for, and fails where one is of another processor, or asks for a later C library or for another library than the name of the wheel promises.
"""

import re
import struct
import sys
import zipfile

PROCESSORS = {62: "x86_64", 183: "aarch64"}
# What every system of the tag has (PEP 600, PEP 656).
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libutil.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MUSL = {"libc.so", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"}


def elf(content):
    """The processor, the libraries, and the versions of symbols that are asked for."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is no ELF file of 64 bits")
    (machine,) = struct.unpack_from("<H", content, 18)
    (sections_at,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, sections_at + index * size) for index in range(count)]

    def text(table, at):
        begin = sections[table][4] + at
        return content[begin : content.index(b"\0", begin)].decode()

    libraries, versions = set(), set()
    for _, kind, _, _, at, length, link, entries, _, _ in sections:
        if kind == 6:  # Dynamic.
            for entry in range(at, at + length, 16):
                tag, value = struct.unpack_from("<QQ", content, entry)
                if tag == 1:
                    libraries.add(text(link, value))
        if kind == 0x6FFFFFFE:  # Versions that are needed.
            for _ in range(entries):
                _, names, _, first, following = struct.unpack_from("<HHIII", content, at)
                name_at = at + first
                for _ in range(names):
                    _, _, _, name, next_name = struct.unpack_from("<IHHII", content, name_at)
                    versions.add(text(link, name))
                    name_at += next_name
                at += following
    return PROCESSORS.get(machine, f"processor {machine}"), libraries, versions


def wrong(found, processor, library):
    machine, libraries, versions = found
    if machine != processor:
        yield f"is for {machine}"
    for name in sorted(libraries - (MUSL if library == "musl" else GLIBC)):
        yield f"asks for {name}"
    most = tuple(map(int, library.removeprefix("glibc-").split("."))) if library != "musl" else (0, 0)
    for version in sorted(versions):
        numbers = re.fullmatch(r"GLIBC_([0-9.]+)", version)
        if numbers and tuple(map(int, numbers[1].split("."))) > most:
            yield f"asks for {version}"


def main(wheel, processor, library):
    code = 0
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", "/scripts/majorfault"))]
        if not any(name.endswith(".so") for name in names):
            print(f"{wheel}: the extension is not in it")
            code = 1
        if len(names) < 2:
            print("  the command is not in it")
        for name in names:
            try:
                found = elf(archive.read(name))
            except (ValueError, struct.error, IndexError) as error:
                print(f"{name}: {error}")
                code = 1
                continue
            glibc = max((tuple(map(int, number[1].split("."))) for version in found[2] if (number := re.fullmatch(r"GLIBC_([0-9.]+)", version))), default=None)
            oldest = f", from glibc {'.'.join(map(str, glibc))} on" if glibc else ""
            print(f"  {name}: {found[0]}, {', '.join(sorted(found[1])) or 'no library'}{oldest}")
            for what in wrong(found, processor, library):
                print(f"  {name}: {what}")
                code = 1
    return code


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
