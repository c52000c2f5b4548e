"""``ray job submit --working-dir . -- python jobs/report.py …``: the options are those of ``ghost-ray report``."""

import sys

from ghost_ray.cli import main

main(["report", *sys.argv[1:]])
