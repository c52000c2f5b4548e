"""The lowest layer that accesses files: paths of every kind, result folders, JSON, tensors and manifests."""

from ghost_ray.files.atomic_output import OutputFolder, output_file
from ghost_ray.files.json_files import parse_json, read_json, read_sealed, write_json, write_sealed
from ghost_ray.files.paths import (
    MANIFEST,
    beside,
    folders_in,
    is_local,
    join,
    kind_of,
    name_of,
    names_in,
    one_attempt,
    open_input,
    read_bytes,
    remove_file,
    remove_tree,
    require_lasting,
    resolve,
    write_bytes,
)
from ghost_ray.files.storage_errors import explained, reaching

__all__ = [
    "MANIFEST",
    "OutputFolder",
    "beside",
    "explained",
    "folders_in",
    "is_local",
    "join",
    "kind_of",
    "name_of",
    "names_in",
    "one_attempt",
    "open_input",
    "output_file",
    "parse_json",
    "reaching",
    "read_bytes",
    "read_json",
    "read_sealed",
    "remove_file",
    "remove_tree",
    "require_lasting",
    "resolve",
    "write_bytes",
    "write_json",
    "write_sealed",
]
