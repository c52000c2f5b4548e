"""An audit of few classes with very many rows: reading only the sample, compared with reading all rows.

    python benchmarks/large_classes.py [--classes 20] [--per-class 200000] [--dimensions 256]

Writes a store in the order of the hash that samples it, audits it as it is and again reading every row group. Prints
one JSON object: seconds, the share of the store's bytes that were read, and whether both audits gave the same tests.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from make_store import make_store

from ghost_ray.store import Store

AUDIT = """
import json, resource, sys, time
from ghost_ray.config import AuditConfig
from ghost_ray.jobs import audit
from ghost_ray.jobs.audit import class_tests
from ghost_ray.store import Store

if sys.argv[3] == "whole":
    class_tests._to_read = lambda store, parts, used, *_: zip(parts, used)

# Files are mapped, so that the kernel does not count what is read of them.
sizes, record_batches = [], Store._record_batches

def counted(self, *what):
    for batch in record_batches(self, *what):
        sizes.append(batch.nbytes)
        yield batch

Store._record_batches = counted
start = time.perf_counter()
found = audit.run(AuditConfig(store=sys.argv[1], out=sys.argv[2]))
print(json.dumps({
    "seconds": round(time.perf_counter() - start, 2),
    "bytes_read": sum(sizes),
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    "rejected_fraction": found["rejected_fraction"],
}))
"""


def audited(store: str, out: str, how: str) -> dict[str, Any]:
    """An audit in a separate process; ``how``: sample or whole."""
    command = [sys.executable, "-c", AUDIT, store, out, how]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--per-class", type=int, default=200_000)
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--folder", default=None, help="where to write, by default among the temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        make_store(
            f"{place}/store", options.classes, options.dimensions, options.per_class, processes=os.cpu_count() or 1
        )
        store = Store.open(f"{place}/store")
        size = sum(os.path.getsize(f"{store.uri}/rows/{file.name}") for file in store.files)
        ordered = audited(store.uri, f"{place}/ordered", "sample")
        whole = audited(store.uri, f"{place}/whole", "whole")
        same = filecmp.cmp(f"{place}/ordered/normality.parquet", f"{place}/whole/normality.parquet", shallow=False)
    print(
        json.dumps(
            {
                "classes": options.classes,
                "rows": store.rows,
                "gigabytes": round(size / 1e9, 2),
                "share_read": round(ordered["bytes_read"] / size, 4),
                "share_read_whole": round(whole["bytes_read"] / size, 4),
                "seconds": ordered["seconds"],
                "seconds_whole": whole["seconds"],
                "peak_mib": ordered["peak_mib"],
                "peak_mib_whole": whole["peak_mib"],
                "same_tests": same,
            }
        )
    )


if __name__ == "__main__":
    main()
