#!/usr/bin/env python3
"""Jobs on each host of a Dask cluster: dask_sweep.py SCHEDULER FOLDER JOB...

    python3 contrib/fleet/dask_sweep.py tcp://head:8786 records 'compare /data/rows.bin --bs 16k' 'reproduce S2 --scale quick'

Needs majorfault[fleet] here and on the workers. SCHEDULER may be `local`: a cluster of this machine alone, to try it.
"""

import sys

from distributed import Client, LocalCluster

from majorfault import fleet


def main(scheduler: str, folder: str, *jobs: str) -> int:
    typed = [fleet.words(job) for job in jobs]
    where = LocalCluster(n_workers=1, dashboard_address=None) if scheduler == "local" else scheduler
    with Client(where) as client:
        swept = fleet.sweep(typed, client, folder)
        if scheduler == "local":
            client.shutdown()
    print(swept)
    return 1 if swept.failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
