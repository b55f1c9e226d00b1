"""What a cross-compiled wheel holds, which cannot be loaded here: check_wheel.py WHEEL MACHINE musl|glibc."""

import struct
import sys
import zipfile

MACHINES = {"x86_64": 62, "aarch64": 183}


def needed(elf):
    """DT_NEEDED of a 64-bit little-endian ELF file, by its section headers."""
    at, count = struct.unpack_from("<Q", elf, 40)[0], struct.unpack_from("<H", elf, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, at + 64 * index) for index in range(count)]
    (dynamic,) = [section for section in sections if section[1] == 6]
    names = sections[dynamic[6]]
    entries = [struct.unpack_from("<QQ", elf, dynamic[4] + 16 * index) for index in range(dynamic[5] // 16)]
    text = elf[names[4] : names[4] + names[5]]
    return [text[value : text.index(b"\0", value)].decode() for tag, value in entries if tag == 1]


def main(wheel, machine, libc):
    with zipfile.ZipFile(wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith("_core.abi3.so")]
        extension = file.read(name)
        programs = [name for name in file.namelist() if "/scripts/" in name]
    assert struct.unpack_from("<H", extension, 18)[0] == MACHINES[machine], "another machine's"
    libraries = needed(extension)
    is_musl = not any(name.startswith(("libc.so.6", "ld-linux")) for name in libraries)
    assert is_musl == (libc == "musl"), libraries
    print(f"{wheel}: {machine}, needs {', '.join(libraries) or 'no library'}; {'with' if programs else 'without'} the command; not loaded: it is another system's")


main(*sys.argv[1:])
