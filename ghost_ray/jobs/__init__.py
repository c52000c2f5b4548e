"""The jobs, one module or folder each: plan → distribute → merge → commit. Each has a ``run(settings)``."""
