"""``audit``: is each class × dimension of a store normal, as GHOST assumes?

The rows of a class are contiguous (or are sorted first), so tasks read whole classes and test each dimension with
Shapiro–Wilk. Finished tests are kept in the staging folder, and an interrupted audit resumes from there. Holm's
correction is made once, over everything.
"""

from ghost_ray.jobs.audit.audit_job import AuditManifest, run
from ghost_ray.jobs.audit.verdict import PAPER_RATES

__all__ = ["PAPER_RATES", "AuditManifest", "run"]
