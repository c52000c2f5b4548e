"""``python -m ghost_ray`` is ``ghost-ray``."""

from ghost_ray.cli import main

main()
