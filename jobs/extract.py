"""``ray job submit --working-dir . -- python jobs/extract.py …``: the options are those of ``ghost-ray extract``."""

import sys

from ghost_ray.cli import main

main(["extract", *sys.argv[1:]])
