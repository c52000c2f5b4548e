"""``ray job submit --working-dir . -- python jobs/evaluate.py …``: the options are those of ``ghost-ray evaluate``."""

import sys

from ghost_ray.cli import main

main(["evaluate", *sys.argv[1:]])
