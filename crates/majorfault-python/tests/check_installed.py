"""What an installed package does, without any other library: check_installed.py works|says-why [without-command]."""

import mmap
import subprocess
import sys
import tempfile

import majorfault


def works():
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        file.write(bytes(range(256)) * 256)
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        assert majorfault.prefetch(mapped, range(0, 4096)) in (0, 4096)
        assert majorfault.residency(mapped).total_bytes == 65536
    assert majorfault.check() is not None
    if "without-command" in sys.argv:
        try:
            majorfault.doctor()
        except majorfault.Missing as missing:
            assert "the command majorfault is not installed here" in str(missing), missing
        return
    subprocess.run([sys.executable, "-m", "majorfault", "list", "methods"], check=True, stdout=subprocess.DEVNULL)


def says_why():
    for use in (lambda: majorfault.prefetch(b""), lambda: majorfault.advise(b"", "random"), lambda: majorfault.residency(b"")):
        try:
            use()
        except majorfault.Missing as missing:
            assert missing.remedy == "use Linux" and "use Linux" in str(missing), missing
        else:
            raise AssertionError("it worked")


{"works": works, "says-why": says_why}[sys.argv[1]]()
