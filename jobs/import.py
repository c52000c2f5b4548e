"""``ray job submit --working-dir . -- python jobs/import.py …``: the options are those of ``ghost-ray import``."""

import sys

from ghost_ray.cli import main

main(["import", *sys.argv[1:]])
