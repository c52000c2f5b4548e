"""``ray job submit --working-dir . -- python jobs/score.py …``: the options are those of ``ghost-ray score``."""

import sys

from ghost_ray.cli import main

main(["score", *sys.argv[1:]])
