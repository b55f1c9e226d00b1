"""Looks up random rows of a table of 200 MB that SQLite maps; the file leaves the page cache every 24 rows."""
import os
import random
import sqlite3

ROWS = 200_000


def connect():
    base = sqlite3.connect("data.db")
    base.execute("PRAGMA mmap_size = 1000000000")
    base.execute("PRAGMA cache_size = 10")
    return base


base = connect()
count = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
base.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, v BLOB)")
base.execute(f"INSERT INTO t {count} SELECT i, randomblob(1000) FROM n")
base.commit()
base.close()
file = os.open("data.db", os.O_RDONLY)
os.fsync(file)
open("ready", "w").close()
random.seed(1)
while True:
    base = connect()
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(24):
        base.execute("SELECT substr(v, 500, 1) FROM t WHERE i = ?", (random.randint(1, ROWS),)).fetchall()
    base.close()
