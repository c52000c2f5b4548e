"""``audit``: is each class × dimension of a store normal, so that GHOST may be adopted for its network?

The rows of a class lie together (or are brought together first), so tasks read whole classes and test each
dimension with Shapiro–Wilk. What is tested is kept in the output's staging folder, and a killed audit goes on from
there. Holm's correction is made once, over everything.
"""

from ghost_ray.audit.job import AuditManifest, run
from ghost_ray.audit.verdict import PAPER_RATES

__all__ = ["PAPER_RATES", "AuditManifest", "run"]
