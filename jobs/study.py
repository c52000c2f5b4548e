"""``ray job submit --working-dir . -- python jobs/study.py …``: the options are those of ``ghost-ray study``."""

import sys

from ghost_ray.cli import main

main(["study", *sys.argv[1:]])
