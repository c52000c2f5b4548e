"""Everything that knows of Ray but not of a particular job: joining it, running tasks in order, merging, sorting."""

from ghost_ray.cluster.nodes import cluster_cpus
from ghost_ray.cluster.path_check import require_places
from ghost_ray.cluster.session import kill_descendants, named_cluster, ray_session
from ghost_ray.cluster.tasks import current_engine, map_merge, map_ordered, threads, workers

__all__ = [
    "cluster_cpus",
    "current_engine",
    "kill_descendants",
    "map_merge",
    "map_ordered",
    "named_cluster",
    "ray_session",
    "require_places",
    "threads",
    "workers",
]
