"""``ray job submit --working-dir . -- python jobs/fit.py …``: the options are those of ``ghost-ray fit``."""

import sys

from ghost_ray.cli import main

main(["fit", *sys.argv[1:]])
