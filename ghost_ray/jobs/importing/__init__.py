"""``import``: a store from embeddings and logits that were computed elsewhere, in files of any common kind.

readers/       files as named arrays, one reader per kind of content
workspace      arrays larger than memory, mapped in place or as a local copy
choosing       which array of a file is meant
label_column   labels as indices or names
head_choice    the last linear layer in a file of tensors
import_plan    what there is to import, settled and checked
import_notes   mistakes that the arrays reveal
import_job     rows in the order of their labels, and the manifest last
"""

from ghost_ray.jobs.importing.import_job import run

__all__ = ["run"]
