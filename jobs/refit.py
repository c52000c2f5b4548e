"""``ray job submit --working-dir . -- python jobs/refit.py …``: the options are those of ``ghost-ray refit``."""

import sys

from ghost_ray.cli import main

main(["refit", *sys.argv[1:]])
