"""The package where a part is missing: the import works, and a use says why not."""

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
