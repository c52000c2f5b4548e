"""The settings of every job: one frozen, validated object each, the same from YAML and the command line.

A field's description is the help text of its option; ``Positional`` and ``Metavar`` say how it is shown. Nothing
heavy is imported here, so that ``--help`` and a wrong option answer at once.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from ghost_ray import safe_yaml
from ghost_ray.errors import InputError, nearest, one_line

_MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class Positional:
    """Marks a field that is an argument rather than an option."""


@dataclass(frozen=True)
class Metavar:
    """The word that stands for the value in ``--help``."""

    name: str


def _pairs(value: Any) -> Any:
    """``NAME=PLACE`` words, or a mapping from YAML, as a mapping."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for word in value:
        name, sign, place = str(word).partition("=")
        if not (sign and name and place):
            raise ValueError(f"{word!r} is not of the form NAME=VALUE")
        if name in pairs:
            raise ValueError(f"the name {name!r} is given twice")
        pairs[name] = place
    return pairs


def _words(value: Any) -> Any:
    """A list, or one string with commas, as a tuple of words."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return tuple(w.strip() for item in value for w in str(item).split(",") if w.strip())


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", name):
        raise ValueError(f"{name!r} is not a plain name (letters, digits, _ . + -)")
    return name


def _actors(value: Any) -> Any:
    """``MIN:MAX`` or one number, which YAML gives as such."""
    if value is None:
        return None
    text = str(value)
    match = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text)
    if not match or int(match[1]) < 1 or (match[2] and int(match[2]) < int(match[1])):
        raise ValueError("is not MIN:MAX with 1 ≤ MIN ≤ MAX, for example 1:8")
    return text


Name = Annotated[str, AfterValidator(_plain_name)]
Pairs = Annotated[dict[Name, str], BeforeValidator(_pairs)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class JobConfig(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RayJobConfig(JobConfig):
    """Settings of a job that runs on Ray."""

    address: str | None = Field(None, description="Ray cluster to join; without it RAY_ADDRESS, or this machine alone.")
    num_cpus: int | None = Field(None, ge=1, description="CPUs to use without a cluster; default: all of this machine.")


class OutputConfig(RayJobConfig):
    """Settings of a job that writes a folder."""

    out: Annotated[str, Metavar("DIR")] = Field(description="Folder for the result; must not exist.", min_length=1)
    overwrite: bool = Field(False, description="Replace an existing result whole.")


class NetworkConfig(BaseModel):
    """Which network, how it runs, and on what."""

    model: Annotated[str, Metavar("NAME")] = Field(
        description="timm name, hf-hub:…, a preset (mae-h, convnextv2-h, swin-t, densenet-121, vit-b-16) "
        "or package.module:factory.",
        min_length=1,
    )
    weights: Annotated[str | None, Metavar("FILE")] = Field(
        None, description="Local .safetensors or .pth checkpoint; default: timm's pretrained weights."
    )
    batch_size: int = Field(64, ge=1, le=65536, description="Images a forward pass.")
    actors: Annotated[str | None, BeforeValidator(_actors), Metavar("MIN:MAX")] = Field(
        None, description="Size of the pool of embedding actors; default: what the cluster has room for."
    )
    gpus_per_actor: float | None = Field(
        None, ge=0, le=64, description="GPUs each actor reserves; default: 1 where the cluster has any, else 0."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="Arithmetic of the forward pass.")
    compile: bool = Field(False, description="Compile the network with torch.compile.")


class SourceConfig(BaseModel):
    """Which images."""

    format: Literal["folder", "flat", "webdataset", "parquet", "list"] | None = Field(
        None, description="Kind of data; default: detected."
    )
    root: Annotated[str | None, Metavar("URI")] = Field(None, description="Folder an image list's paths start from.")
    limit: int | None = Field(None, ge=1, description="Use a seeded sample of at most N images.")
    per_class: int | None = Field(None, ge=1, description="Use a seeded sample of at most N images of each class.")
    seed: int = Field(0, ge=0, description="Seed of the samples.")
    max_failures: Fraction = Field(0.01, description="Share of images that may fail before the job ends with exit 1.")


class ExtractConfig(OutputConfig, NetworkConfig, SourceConfig):
    """Settings of ``extract``."""

    out: Annotated[str, Metavar("STORE")] = Field(description="The store to write; must not exist.", min_length=1)
    data: Annotated[str, Metavar("URI")] = Field(
        description="Images: folder of class folders, flat folder, WebDataset tars, Parquet or an image list.",
        min_length=1,
    )
    classes: Annotated[str | None, Metavar("FILE")] = Field(
        None, description="Class name → index of the head (JSON, YAML or 'name index' lines)."
    )
    unknown: bool = Field(False, description="Label every image −1: it belongs to no class of the network.")
    restrict: bool = Field(False, description="Narrow the head to the classes present in the data.")
    restrict_like: Annotated[str | None, Metavar("STORE")] = Field(
        None,
        description="Narrow the head as that store's was: for unknowns and tests beside a store made with --restrict.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ExtractConfig:
        if self.restrict and self.restrict_like:
            raise ValueError("--restrict and --restrict-like exclude each other")
        if self.unknown and (self.classes or self.restrict or self.per_class):
            raise ValueError("--unknown goes with none of --classes, --restrict, --per-class")
        return self


class ImportConfig(OutputConfig):
    """Settings of ``import``."""

    out: Annotated[str, Metavar("STORE")] = Field(description="The store to write; must not exist.", min_length=1)
    features: Annotated[str, Metavar("F.npy")] = Field(description="Embeddings, [N, D].", min_length=1)
    logits: Annotated[str, Metavar("L.npy")] = Field(description="Logits, [N, K].", min_length=1)
    labels: Annotated[str | None, Metavar("y.npy")] = Field(
        None, description="Class indices, [N]; default: column 0 of both arrays, as in the authors' files."
    )
    head: Annotated[str | None, Metavar("HEAD.safetensors")] = Field(
        None, description="The last linear layer: weight [K, D], bias [K]."
    )
    unknown: bool = Field(False, description="Label every row −1.")
    model: Annotated[str, Metavar("NAME")] = Field("imported", description="Name of the network, for the manifest.")
    class_names: Annotated[str | None, Metavar("FILE")] = Field(
        None, description="Names of the K classes: a JSON list, or one a line."
    )


class FitConfig(OutputConfig):
    """Settings of ``fit``."""

    store: Annotated[str, Positional(), Metavar("STORE")] = Field(description="Store of labelled training images.")
    out: Annotated[str, Metavar("MODEL")] = Field(description="The model to write; must not exist.", min_length=1)


class AuditConfig(OutputConfig):
    """Settings of ``audit``."""

    store: Annotated[str, Positional(), Metavar("STORE")] = Field(description="Store of labelled training images.")
    alpha: float = Field(0.05, gt=0, lt=1, description="Family-wise error rate.")
    family: Literal["all", "class"] = Field(
        "all", description="Holm's family: all tests together, or one family a class."
    )
    max_n: int = Field(5000, ge=3, le=5000, description="Largest sample of a class tested; above it a seeded sample.")
    seed: int = Field(0, ge=0, description="Seed of that sample.")
    fail_above: Fraction | None = Field(None, description="Exit 1 when a larger share of the tests rejects normality.")


class ScoreConfig(RayJobConfig):
    """Settings of ``score``."""

    gaussians: Annotated[str, Positional(), Metavar("MODEL")] = Field(description="Model made by `fit`.")
    store: Annotated[str | None, Metavar("STORE")] = Field(None, description="Score the rows of this store.")
    data: Annotated[str | None, Metavar("URI")] = Field(None, description="Score these images.")
    network: Annotated[str | None, Metavar("NAME")] = Field(
        None, description="With --data: the network; default: the one the model was fitted on."
    )
    weights: Annotated[str | None, Metavar("FILE")] = Field(None, description="With --data: the network's weights.")
    batch_size: int = Field(64, ge=1, le=65536, description="With --data: images a forward pass.")
    out: Annotated[str, Metavar("SCORES.parquet")] = Field(description="Result: key, pred, score, accepted.")
    overwrite: bool = Field(False, description="Replace an existing result.")
    threshold: float | None = Field(None, description="Accept scores at or above this.")
    accept_known: Fraction | None = Field(None, description="Keep this share of the knowns of --known.")
    accept_fpr: Fraction | None = Field(None, description="Accept at most this share of the unknowns of --unknown.")
    known: Annotated[str | None, Metavar("STORE")] = Field(None, description="Known store for --accept-known.")
    unknown: Annotated[str | None, Metavar("STORE")] = Field(None, description="Unknown store for --accept-fpr.")

    @model_validator(mode="after")
    def _consistent(self) -> ScoreConfig:
        if (self.store is None) == (self.data is None):
            raise ValueError("exactly one of --store and --data is needed")
        if sum(x is not None for x in (self.threshold, self.accept_known, self.accept_fpr)) > 1:
            raise ValueError("only one of --threshold, --accept-known, --accept-fpr may be given")
        if (self.accept_known is None) != (self.known is None):
            raise ValueError("--accept-known and --known go together")
        if (self.accept_fpr is None) != (self.unknown is None):
            raise ValueError("--accept-fpr and --unknown go together")
        return self


class EvaluateConfig(OutputConfig):
    """Settings of ``evaluate``."""

    fit: Annotated[str, Metavar("STORE")] = Field(description="Store of labelled training images, to fit on.")
    known: Annotated[str, Metavar("STORE")] = Field(description="Store of labelled test images.")
    unknown: Annotated[Pairs, Metavar("NAME=STORE")] = Field(
        description="Store of unknown images, under a name; repeat for more.", min_length=1
    )
    methods: Annotated[Words, Metavar("NAMES")] = Field(
        ("ghost", "msp", "maxlogit", "energy"), description="Methods, with commas, or `all`.", min_length=1
    )
    group: Annotated[Pairs, Metavar("NAME=A,B")] = Field(
        {}, description="Unknown sets to average under one name (near=ssb_hard,ninco); repeat for more."
    )
    draws: int = Field(10, ge=2, le=1000, description="Draws of the significance test.")
    draw_size: int = Field(1000, ge=10, description="Knowns and unknowns a draw.")
    seed: int = Field(0, ge=0, description="Seed of everything drawn.")


class ReportConfig(JobConfig):
    """Settings of ``report``."""

    folders: Annotated[Words, Positional(), Metavar("DIR")] = Field(
        description="Results to show: audits, evaluations, models, versions, or folders of them.", min_length=1
    )
    out: Annotated[str | None, Metavar("FILE.html")] = Field(
        None, description="The page; default: report.html in the first folder."
    )
    title: str = Field("GHOST report", description="Title of the page.", max_length=200)
    plots: bool = Field(True, description="Also write every figure as PNG, SVG and PDF into plots/ beside the page.")
    overwrite: bool = Field(True, description="Replace an existing page.")


class DemoConfig(RayJobConfig):
    """Settings of ``demo``."""

    out: Annotated[str, Metavar("DIR")] = Field("ghost-demo", description="Folder for everything the demo makes.")
    overwrite: bool = Field(False, description="Replace an earlier demo.")
    methods: Annotated[Words, Metavar("NAMES")] = Field(
        ("ghost", "msp", "maxlogit", "energy"), description="Methods to compare, with commas, or `all`.", min_length=1
    )


C = TypeVar("C", bound=JobConfig)


def load_yaml(path: str, field: str = "--config") -> dict[str, Any]:
    """A YAML file as a mapping, loaded safely."""
    try:
        if os.path.getsize(path) > _MAX_CONFIG_BYTES:
            raise ValueError(f"is larger than {_MAX_CONFIG_BYTES >> 20} MiB")
        with open(path, encoding="utf-8") as handle:
            content = safe_yaml.load(handle.read())
    except FileNotFoundError:
        raise InputError(field, path, "does not exist", "name a YAML file") from None
    except (OSError, ValueError) as error:
        raise InputError(field, path, f"cannot be read: {one_line(error)}", "write it as YAML `key: value`") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(field, path, "is not a YAML mapping", "write it as `key: value` lines")
    return content


def build(kind: type[C], options: dict[str, Any], config_file: str | None = None) -> C:
    """The validated settings from a file's content and the options that override it.

    Raises
    ------
    InputError
        For the first thing that is wrong: an unknown key with the nearest right one, or a value with what is allowed.
    """
    content = load_yaml(config_file) if config_file else {}
    values = {_attribute(key): value for key, value in content.items()} | options
    for key in values:
        if key not in kind.model_fields:
            hint = nearest(key, kind.model_fields) or "allowed: " + ", ".join(kind.model_fields)
            raise InputError("--config", config_file or key, f"has the unknown key {key!r}", hint)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _explain(kind, error.errors()[0]) from None


def _attribute(key: str) -> str:
    return key.replace("-", "_")


def flag(kind: type[BaseModel], field: str) -> str:
    """How a field is written on the command line: ``--max-n``, or ``STORE`` for an argument."""
    info = kind.model_fields[field]
    marks = info.metadata
    if any(isinstance(m, Positional) for m in marks):
        return next((m.name for m in marks if isinstance(m, Metavar)), field.upper())
    return "--" + field.replace("_", "-")


def _keys_at(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys allowed where a path through nested settings ends."""
    for step in path[:-1]:
        info = kind.model_fields.get(str(step))
        if info is None:
            continue  # the name in a mapping of sections
        members = get_args(info.annotation) or (info.annotation,)
        kind = next((m for m in members if isinstance(m, type) and issubclass(m, BaseModel)), kind)
    return list(kind.model_fields)


def is_nested(info: FieldInfo) -> bool:
    """Whether a field is a section of settings of its own, which stands in a file and never on the command line."""
    members = get_args(info.annotation) or (info.annotation,)
    return any(isinstance(member, type) and issubclass(member, BaseModel) for member in members)


def _explain(kind: type[BaseModel], error: Any) -> InputError:
    path = error["loc"]
    message = error["msg"].removeprefix("Value error, ")
    if not path:
        return InputError("options", kind.__name__.removesuffix("Config").lower(), message, "see --help")
    name = str(path[0])
    if name in kind.model_fields and is_nested(kind.model_fields[name]):
        option = ".".join(map(str, path))
    else:
        option = flag(kind, name) if name in kind.model_fields else name
    if error["type"] == "missing":
        return InputError(option, "", "is needed and was not given", "see --help")
    if error["type"] == "extra_forbidden":
        return InputError(
            "--config", ".".join(map(str, path)), "is an unknown key", nearest(str(path[-1]), _keys_at(kind, path))
        )
    given = error["input"]
    shown = " ".join(map(str, given)) if isinstance(given, tuple) else given  # a tuple: the option may be repeated
    return InputError(option, shown, message[:1].lower() + message[1:], "see --help")
