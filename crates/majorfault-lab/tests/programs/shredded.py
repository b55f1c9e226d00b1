"""A mapped file cut into 60 000 mappings by mprotect(2), with faults in it; its name is gone where `deleted` is asked."""
import ctypes
import mmap
import os
import sys

PAGE, PAGES = 4096, 60_000

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
with open("data", "wb") as data:
    data.truncate(PAGES * PAGE)
file = os.open("data", os.O_RDWR)
mapped = mmap.mmap(file, PAGES * PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
for page in range(0, PAGES, 2):
    if libc.mprotect(base + page * PAGE, PAGE, mmap.PROT_READ) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
if "deleted" in sys.argv:
    os.unlink("data")
open("ready", "w").close()
while True:
    for page in range(PAGES):
        mapped[page * PAGE]
    mapped.madvise(mmap.MADV_DONTNEED)
