"""Whether an installed package works, with nothing but Python: smoke.py [not-run], which leaves the command alone (an emulator of one program cannot start another).

Run by tools/wheels.sh for each wheel that it can run."""

import mmap
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile

import majorfault

with tempfile.NamedTemporaryFile() as file:
    file.write(b"".join(number.to_bytes(4, "little") * 4096 for number in range(64)))
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    asked = majorfault.prefetch(mapped, range(1 << 16, 1 << 17))
    assert asked in (0, 1 << 16), asked
    assert majorfault.residency(mapped).total_bytes == 1 << 20
    assert majorfault.file_of(mapped) == (file.name, 0)
    assert majorfault.release(mapped) == 1 << 20
    try:
        majorfault.prefetch(bytearray(100_000))
    except majorfault.NotMapped:
        pass
    else:
        raise AssertionError("memory without a file was taken")
    mapped.close()
command = os.path.join(sysconfig.get_path("scripts"), "majorfault")
said = "not run"
if sys.argv[1:] != ["not-run"]:
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.strip() if os.path.exists(command) else "not there"
lock = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", without the lock"
print(f"works: Python {platform.python_version()}{lock} on {platform.machine()}, {'musl' if 'musl' in str(sysconfig.get_config_var('HOST_GNU_TYPE')) + str(sysconfig.get_config_var('MULTIARCH')) else platform.libc_ver()[0]}; the command: {said}")
