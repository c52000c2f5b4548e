"""``ray job submit --working-dir . -- python jobs/audit.py …``: the options are those of ``ghost-ray audit``."""

import sys

from ghost_ray.cli import main

main(["audit", *sys.argv[1:]])
