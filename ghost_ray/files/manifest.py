"""What every result says about itself: which network, which data, which settings, which versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from ghost_ray import __version__
from ghost_ray.config.fields import Place
from ghost_ray.errors import Damaged, InputError, one_line, redact, redact_values
from ghost_ray.files import MANIFEST, is_local, join, kind_of, reaching, read_sealed, resolve, write_sealed
from ghost_ray.files.digests import Digest, damaged, digests_of, wrong_sizes
from ghost_ray.files.paths import sync, sync_tree

FORMAT_VERSION = 1  # of every kind of result that does not say otherwise
# A number is raised when the code of that job gives other results for the same input: the next refit or study then
# computes them again. Results of a release with the same numbers are not computed again.
RESULT_VERSIONS = {"store": 1, "model": 1, "audit": 1, "evaluation": 2}
UNNAMED = "imported"  # the name of the network of arrays that were imported without one
# Beyond these limits a manifest is treated as broken or hostile, and nothing is allocated.
MAX_CLASSES = 10_000_000
MAX_DIMENSIONS = 1_000_000
MAX_CELLS = 1 << 32

Kind = Literal["store", "model", "audit", "evaluation", "demo", "version", "study"]


class JsonRecord(BaseModel):
    """An object in one of our JSON files: immutable; keys of later format versions are carried along unread."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Network(JsonRecord):
    """The network whose embeddings these are."""

    name: str
    weights_sha256: str | None = None
    classes: int = Field(gt=0, le=MAX_CLASSES)
    dimensions: int = Field(gt=0, le=MAX_DIMENSIONS)
    preprocessing: dict[str, Any] = {}
    restricted_to: list[int] | None = None  # the classes kept of a head that was narrowed
    head_sha256: str | None = None  # of an imported head: such stores have no weights to tell them by

    @model_validator(mode="after")
    def _allocatable(self) -> Network:
        if self.classes * self.dimensions > MAX_CELLS:
            raise ValueError(f"{self.classes} classes × {self.dimensions} dimensions are more than {MAX_CELLS:,}")
        return self

    def describe(self) -> str:
        digest = f"sha256 {self.weights_sha256[:12]}" if self.weights_sha256 else "weights unknown"
        digest += f", head {self.head_sha256[:12]}" if self.head_sha256 else ""
        kept = ", head narrowed" if self.restricted_to is not None else ""
        return f"{self.name} (K={self.classes}, D={self.dimensions}, {digest}{kept})"

    def same_as(self, other: Network) -> bool:
        """Whether both are the same network; if digests are unknown, name and shape decide."""
        shapes = (self.classes, self.dimensions) == (other.classes, other.dimensions)
        shapes = shapes and self.restricted_to == other.restricted_to
        if self.weights_sha256 and other.weights_sha256:
            return shapes and self.weights_sha256 == other.weights_sha256
        if self.head_sha256 and other.head_sha256:
            return shapes and self.head_sha256 == other.head_sha256
        return shapes and self.name == other.name

    def may_be_another(self, other: Network) -> bool:
        """Whether only the shape says that both are the same: no digest of both is known, and neither has a name."""
        digests = (self.weights_sha256 and other.weights_sha256) or (self.head_sha256 and other.head_sha256)
        return not digests and {self.name, other.name} == {UNNAMED}


class Data(JsonRecord):
    """Where the rows came from. The fingerprint changes when a file is added, removed or resized."""

    uri: str
    kind: str
    fingerprint: str | None = None


class Manifest(JsonRecord):
    """Common part of all manifests; each kind of result adds its own fields."""

    reads: ClassVar[tuple[int, ...]] = (FORMAT_VERSION,)  # the format versions of this kind that are understood

    format: Literal["ghost_ray"] = "ghost_ray"
    format_version: int = FORMAT_VERSION
    kind: Kind
    created: str
    network: Network
    data: list[Data] = []
    rows: int = Field(ge=0)
    config: dict[str, Any] = {}
    versions: dict[str, str] = {}
    result_versions: dict[str, int] = {}  # RESULT_VERSIONS of the code that made it; 0.1 kept none, and all were 1
    notes: list[str] = []  # what a reader of the result should know, one sentence each
    digests: dict[str, Digest] | None = None  # of every file beside this one; 0.1 kept none

    def is_of_this_code(self) -> bool:
        """Whether this release would get the same result from the same input."""
        return self.result_versions.get(self.kind, 1) == RESULT_VERSIONS.get(self.kind, 1)


M = TypeVar("M", bound=Manifest)


def provenance(config: BaseModel) -> dict[str, Any]:
    """The fields every new manifest starts with: time, settings, versions of libraries and results."""
    return {
        "created": now(),
        "config": redact_values(config.model_dump(mode="json")),
        "versions": library_versions(),
        "result_versions": dict(RESULT_VERSIONS),
    }


# Where a job runs, and what it checks before.
_NO_MATTER = {"address", "num_cpus", "wait_for_nodes", "overwrite", "out", "verify"}


def difference(
    made: Mapping[str, Any], config: BaseModel, inputs: Sequence[str | None], free: Collection[str] = ()
) -> str:
    """What a job would make differently from a finished result with the manifest ``made``, in words; "" if nothing.

    Parameters
    ----------
    config : BaseModel
        The settings of the job. Not the places in them are compared, but what is there.
    inputs : sequence of str
        Fingerprints of what the job reads, in the order of the manifest's ``data``.
    free : collection of str
        Settings that change nothing in the result.
    """
    try:
        before = Manifest.model_validate(made)
    except ValidationError:
        return "its manifest is not understood"
    if not before.is_of_this_code():
        return "by a release with other results"
    settings = redact_values(config.model_dump(mode="json"))
    for name, info in type(config).model_fields.items():
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        old, new = before.config.get(name, TypeAdapter(Any).dump_python(default, mode="json")), settings[name]
        if any(isinstance(mark, Place) for mark in info.metadata):
            old, new = (list(value) if isinstance(value, dict) else value is not None for value in (old, new))
        if old != new and name not in _NO_MATTER and name not in free:
            return f"`{name}` {changed(old, new)}"
    found = [part.fingerprint for part in before.data]
    return "" if found == list(inputs) and None not in found else "from other inputs, or inputs that have changed"


def changed(before: object, now: object) -> str:
    """Another value of a setting in words."""
    was, is_now = ("not given" if value is None else one_line(value, 60) for value in (before, now))
    return f"was {was}, is {is_now}"


def now() -> str:
    """The present moment as manifests write it: ISO 8601, UTC, seconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _moment(text: str) -> str:
    if datetime.datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no time zone")
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # as `now` writes it


def library_versions() -> dict[str, str]:
    names = ("numpy", "scipy", "pyarrow", "ray", "torch", "timm")
    found = {name: importlib.metadata.version(name) for name in names}
    return {"ghost_ray": __version__, "python": platform.python_version(), **found}


def write_manifest(folder: str, manifest: M, digests: dict[str, Digest] | None = None) -> M:
    """Write the manifest, with size and digest of every file beside it; returns it as it was written.

    It is written last, since its presence means that the folder is complete. A caller gives ``digests`` if it knows
    them, or if not all files of the folder should be listed.
    """
    listed = digests_of(folder) if digests is None else digests
    whole = manifest.model_copy(update={"digests": listed})
    sync_tree(folder)  # a manifest that survives a power cut must not describe files that did not
    write_sealed(join(folder, MANIFEST), whole.model_dump(mode="json"))
    if is_local(folder):
        sync(resolve(folder)[1])
    return whole


def read_manifest(folder: str, kind: type[M], field: str, made_by: str, *, alone: bool = False) -> M:
    """Read and check the manifest in ``folder``, and that every file it names is there in the size it had.

    ``made_by`` is the command that would make such a folder; ``alone``, the other files are not looked at.
    """
    with reaching(folder, field):
        manifest = _read(folder, kind, field, made_by)
        damages = [] if alone else wrong_sizes(folder, manifest.digests or {})
    if damages:
        raise damaged(field, folder, damages, f"make it again with `{made_by}`")
    return manifest


def _read(folder: str, kind: type[M], field: str, made_by: str) -> M:
    if kind_of(folder) == "nothing":
        raise InputError(field, redact(folder), "does not exist", f"make one with `{made_by}`")
    where = join(folder, MANIFEST)
    if kind_of(where) != "file":
        raise InputError(
            field,
            redact(folder),
            f"has no {MANIFEST}: it is incomplete or something else",
            f"finish `{made_by}`",
        )
    try:
        raw = read_sealed(where)
    except ValueError as error:
        again = f"make it again with `{made_by}`"
        raise Damaged(field, redact(folder), f"{MANIFEST} {one_line(error)}", again) from None
    try:
        if not isinstance(raw, dict):
            raise ValueError("is not a JSON object")
        expected = kind.model_fields["kind"].default
        if raw.get("kind") != expected:
            raise ValueError(f"describes a result of kind {one_line(raw.get('kind'), 40)!r}, expected {expected!r}")
        if raw.get("format_version") not in kind.reads:
            understood = " and ".join(str(version) for version in kind.reads)
            raise ValueError(
                f"has format version {one_line(raw.get('format_version'), 40)}, this release reads {understood}"
            )
        manifest = kind.model_validate(raw)
        names = getattr(manifest, "class_names", None)  # some kinds of result have them
        if names is not None and len(names) != manifest.network.classes:
            raise ValueError(f"has {len(names)} class names for {manifest.network.classes} classes")
        return manifest
    except ValidationError as error:
        problem = f"{MANIFEST}: {first_problem(error)}"
    except ValueError as error:
        problem = f"{MANIFEST} {one_line(error)}"
    raise InputError(field, redact(folder), problem, f"make it again with `{made_by}`")


_MOST_DESCRIBED = 1000  # wrong values: pydantic describes all of them or none, a kilobyte each


def first_problem(error: ValidationError) -> str:
    """What is wrong with the content of a file, in one line."""
    if error.error_count() > _MOST_DESCRIBED:
        return f"{error.error_count():,} of its values are wrong"
    first = error.errors(include_url=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return one_line(": ".join(filter(None, [".".join(map(str, first["loc"])), message])))


def require_same_network(a: Network, a_name: str, b: Network, b_name: str, field: str) -> None:
    """Refuse to combine results of two networks, naming both."""
    if not a.same_as(b):
        raise InputError(
            field,
            b_name,
            f"belongs to {b.describe()}, but {a_name} to {a.describe()}",
            "use results of one network",
        )


def of_unnamed_networks(first: str, one: Network, others: Mapping[str, Network]) -> list[str]:
    """A note on results that are taken for those of one network because nothing tells them apart."""
    unsure = [name for name, network in others.items() if one.may_be_another(network)]
    if not unsure:
        return []
    are = "is" if len(unsure) == 1 else "are"
    return [
        f"nothing but the shape (K={one.classes}, D={one.dimensions}) says that {', '.join(unsure)} {are} of the "
        f"network of {first}: import all with `head`, or with a `model` of their own, and networks are told apart"
    ]
