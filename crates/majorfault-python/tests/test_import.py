"""The package where a part is missing: the import works, and a use says why not."""

import subprocess
import sys
import zipfile
from pathlib import Path

from conftest import run

ABSENT = """
import sys
sys.modules["majorfault._core"] = None
import majorfault
try:
    majorfault.prefetch(b"bytes")
except majorfault.Missing as missing:
    print(missing.remedy, "|", missing)
"""


def test_without_the_extension_the_import_works_and_a_use_says_why_not():
    ended = run(ABSENT)

    assert ended.stdout.startswith("use Linux | majorfault.prefetch is not available here: "), ended.stderr


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import mmap, majorfault
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(majorfault.prefetch(mapped, range(0, 4096)), majorfault.release(mapped), majorfault.residency(mapped).total_bytes)
print([batch for batch in majorfault.Ahead([[1], [2]], mapped)])
"""


def test_numpy_is_needed_by_those_who_use_it(rows):
    ended = run(WITHOUT_NUMPY, rows[0])

    assert ended.stdout == "4096 16777216 16777216\n[[1], [2]]\n", ended.stderr


def test_importing_loads_none_of_the_other_libraries():
    ended = run("import sys, majorfault; print([name for name in ('numpy', 'pyarrow', 'torch', 'pandas') if name in sys.modules])")

    assert ended.stdout == "[]\n", ended.stderr


ELSEWHERE = """
import sys
sys.modules["majorfault._core"] = None
sys.platform = "darwin"
import majorfault, majorfault.fleet
for use in (lambda: majorfault.prefetch(b"bytes"), lambda: majorfault.advise(b"", "random"), lambda: majorfault.load(sys.argv[1]), lambda: majorfault.residency(b"")):
    try:
        use()
        print("it worked")
    except majorfault.Missing as missing:
        print(missing.remedy, "|", missing.reason)
"""


def test_on_another_system_each_use_says_which_it_is_for(rows):
    ended = run(ELSEWHERE, rows[0])

    assert ended.stdout == "use Linux | mapped files are announced to Linux, and this is darwin\n" * 4, ended.stderr


def test_the_wheel_for_other_systems_is_whole(tmp_path):
    # Made of a wheel that stands for a built one.
    built = tmp_path / "majorfault-0.1.0-cp311-abi3-linux_x86_64.whl"
    info = "majorfault-0.1.0.dist-info"
    with zipfile.ZipFile(built, "w") as file:
        for name in (f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD", "majorfault/__init__.py", "majorfault/_core.abi3.so", "majorfault-0.1.0.data/scripts/majorfault"):
            file.writestr(name, name)

    subprocess.run([sys.executable, str(Path(__file__).parents[1] / "any_wheel.py"), str(built), str(tmp_path)], check=True, capture_output=True)

    with zipfile.ZipFile(tmp_path / "majorfault-0.1.0-py3-none-any.whl") as file:
        assert sorted(file.namelist()) == [f"{info}/METADATA", f"{info}/RECORD", f"{info}/WHEEL", "majorfault/__init__.py"]
        assert "Tag: py3-none-any\n" in file.read(f"{info}/WHEEL").decode()
        assert file.read(f"{info}/RECORD").decode().count("sha256=") == 3
