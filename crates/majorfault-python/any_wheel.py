#!/usr/bin/env python3
"""The wheel for systems that have none of their own, made of a built one: any_wheel.py WHEEL FOLDER.

It has the modules in Python alone: neither the extension nor the command. The import works there, and a use says why not.
"""

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path


def is_kept(name):
    return not name.endswith((".so", "/RECORD", "/WHEEL")) and ".data/" not in name and "/sboms/" not in name


def record(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def main(wheel, folder):
    with zipfile.ZipFile(wheel) as source:
        (info,) = {name.split("/")[0] for name in source.namelist() if name.split("/")[0].endswith(".dist-info")}
        files = {name: source.read(name) for name in source.namelist() if is_kept(name) and not name.endswith("/")}
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: majorfault any_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    name = re.match(r"(.+)\.dist-info$", info).group(1)
    made = Path(folder, f"{name}-py3-none-any.whl")
    lines = [record(*item) for item in sorted(files.items())] + [f"{info}/RECORD,,"]
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for path, content in sorted(files.items()):
            target.writestr(zipfile.ZipInfo(path), content)
        target.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join(lines) + "\n")
    print(made)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
