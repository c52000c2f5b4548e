"""The settings of every job: one frozen, validated object each, the same from YAML and the command line.

A field's description is the help text of its option; ``Positional`` and ``Metavar`` say how it is shown. Nothing
heavy is imported here, so that ``--help`` and a wrong option answer at once.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ghost_ray.config.fields import (
    Catalogue,
    Fraction,
    Metavar,
    Pairs,
    Place,
    Positional,
    Wait,
    Words,
    actors_range,
    require_apart,
)

# GHOST, its main rival in the paper, and the rivals that need no fitting.
DEFAULT_METHODS = ("ghost", "msp", "maxlogit", "energy", "nnguide")


class JobConfig(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _keeps_its_inputs(self) -> Self:
        require_apart(self)
        return self


class RayJobConfig(JobConfig):
    """Settings of a job that runs on Ray."""

    address: str | None = Field(None, description="Ray cluster to join. Default: RAY_ADDRESS, else this machine alone.")
    num_cpus: int | None = Field(None, ge=1, description="CPUs to use when no cluster is joined. Default: all.")
    wait_for_nodes: Wait = Field(
        "30m",
        validate_default=True,
        description="How long to wait for nodes to join a cluster before giving up, as in 30m or 2h.",
    )


class OutputConfig(RayJobConfig):
    """Settings of a job that writes a folder."""

    out: Annotated[str, Metavar("DIR"), Place(written=True)] = Field(
        description="Folder for the result. A result that is there already is kept.", min_length=1
    )
    overwrite: bool = Field(False, description="Replace an existing result of the same kind.")


class DeviceConfig(BaseModel):
    """Which weights a network has, how it runs, and on what."""

    weights: Annotated[str | None, Metavar("URI"), Place()] = Field(
        None,
        description="Checkpoint, .safetensors or PyTorch's, local or on s3://, gs://, abfs:// or hf://. Default: the "
        "published weights.",
    )
    batch_size: int = Field(64, ge=1, le=65536, description="Images per forward pass.")
    actors: Annotated[str | None, BeforeValidator(actors_range), Metavar("MIN:MAX")] = Field(
        None,
        description="Size of the pool of embedding actors. Default: from what the cluster has now up to what the work "
        "is worth.",
    )
    gpus_per_actor: float | None = Field(
        None,
        ge=0,
        le=64,
        description="GPUs per actor. Default: 1 if the cluster has a GPU. On a named cluster without one, it must be "
        "given: 1 waits for GPUs, 0 uses CPUs.",
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="Precision of the forward pass.")
    compile: bool = Field(False, description="Compile the network with torch.compile.")
    tf32: bool = Field(
        False, description="Let a GPU round float32 operands to TF32: faster, with 10 instead of 23 bits of precision."
    )


class NetworkConfig(DeviceConfig):
    """Which network, how it runs, and on what."""

    model: Annotated[str, Metavar("NAME"), Catalogue("networks")] = Field(
        description="timm name, torchvision:NAME, hf-hub:…, preset (mae-h, mae-b, convnextv2-h, swin-t, densenet-121, "
        "vit-b-16), package.module:factory or a network of an installed package.",
        min_length=1,
    )


class SourceConfig(BaseModel):
    """Which images."""

    format: Annotated[str | None, Metavar("NAME"), Catalogue("formats")] = Field(
        None, description="Format of the images. Formats are listed below. Default: detected."
    )
    root: Annotated[str | None, Metavar("URI"), Place()] = Field(
        None, description="Folder that the paths of an image list are relative to."
    )
    limit: int | None = Field(None, ge=1, description="Use a random sample of at most N images (see --seed).")
    per_class: int | None = Field(
        None, ge=1, description="Use a random sample of at most N images per class (of unknowns: per subfolder)."
    )
    seed: int = Field(0, ge=0, description="Seed of the random samples.")
    max_failures: Fraction = Field(
        0.01, description="Share of images that may fail. If more fail, the job ends with exit code 1."
    )


class ExtractConfig(OutputConfig, NetworkConfig, SourceConfig):
    """Settings of ``extract``."""

    out: Annotated[str, Metavar("STORE"), Place(written=True)] = Field(
        description="The store to write. One that is there already is kept.", min_length=1
    )
    data: Annotated[str, Metavar("URI"), Place()] = Field(
        description="Images: a folder or a file, local or on an object store.",
        min_length=1,
    )
    classes: Annotated[str | None, Metavar("FILE"), Place(shared=False)] = Field(
        None, description="Map from class name to index in the head (JSON, YAML or 'name index' lines)."
    )
    unknown: bool = Field(False, description="The images belong to no class of the network. They are labelled −1.")
    restrict: bool = Field(False, description="Keep only the classes of the head that occur in the data.")
    restrict_like: Annotated[str | None, Metavar("STORE"), Place(shared=False)] = Field(
        None,
        description="Keep the classes that STORE kept, for test and unknown images beside a --restrict store.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ExtractConfig:
        if self.restrict and self.restrict_like:
            raise ValueError("`restrict` and `restrict_like` cannot be used together")
        if self.unknown and (self.classes or self.restrict):
            raise ValueError("`unknown` cannot be used with `classes` or `restrict`")
        return self


class ImportConfig(OutputConfig):
    """Settings of ``import``."""

    out: Annotated[str, Metavar("STORE"), Place(written=True)] = Field(
        description="The store to write. One that is there already is kept.", min_length=1
    )
    features: Annotated[str, Metavar("FILE[#NAME]"), Place(shared=False)] = Field(
        description="Embeddings, [N, D]: .npy, .npz, .pt, .safetensors, Parquet or CSV. #NAME is an array or column "
        "in it. Default: the one with a common name.",
        min_length=1,
    )
    logits: Annotated[str, Metavar("FILE[#NAME]"), Place(shared=False)] = Field(
        description="Logits, [N, K]. May be the file of the features.", min_length=1
    )
    labels: Annotated[str | None, Metavar("FILE[#NAME]"), Place(shared=False)] = Field(
        None,
        description="Class indices or names, [N]. −1 is an unknown. Default: column 0 of both arrays, as the authors' "
        "code expects, or the labels in the file of the features.",
    )
    keys: Annotated[str | None, Metavar("FILE[#NAME]"), Place(shared=False)] = Field(
        None, description="A name for each row, [N]. Default: the row's number."
    )
    head: Annotated[str | None, Metavar("FILE[#NAME]"), Place(shared=False)] = Field(
        None, description="The last linear layer: weight [K, D], bias [K], alone or in a network's checkpoint."
    )
    unknown: bool = Field(False, description="The rows belong to no class. They are labelled −1.")
    unknown_out: Annotated[str | None, Metavar("STORE"), Place(written=True)] = Field(
        None, description="Write the rows labelled −1 to this store, and the others to --out."
    )
    restrict: bool = Field(False, description="Keep only the classes of the head that occur in the labels.")
    restrict_like: Annotated[str | None, Metavar("STORE"), Place(shared=False)] = Field(
        None, description="Keep the classes that STORE kept, for test and unknown rows beside a --restrict store."
    )
    model: Annotated[str, Metavar("NAME")] = Field(
        "imported", description="Name of the network, recorded in the manifest."
    )
    class_names: Annotated[str | None, Metavar("FILE"), Place(shared=False)] = Field(
        None, description="Names of the K classes in the order of the logits: a JSON list, or one per line."
    )

    @model_validator(mode="after")
    def _consistent(self) -> ImportConfig:
        if self.restrict and self.restrict_like:
            raise ValueError("`restrict` and `restrict_like` cannot be used together")
        if self.unknown and (self.restrict or self.unknown_out):
            raise ValueError("`unknown` cannot be used with `restrict` or `unknown_out`")
        return self


class StoreReadingConfig(BaseModel):
    """Settings of a job that reads stores."""

    verify: bool = Field(False, description="First read every file of the stores and compare it with what was written.")


class FitConfig(OutputConfig, StoreReadingConfig):
    """Settings of ``fit``."""

    store: Annotated[str, Positional(), Metavar("STORE"), Place()] = Field(
        description="Store of labelled training images."
    )
    out: Annotated[str, Metavar("MODEL"), Place(written=True)] = Field(
        description="The model to write. One that is there already is kept.", min_length=1
    )


class AuditConfig(OutputConfig, StoreReadingConfig):
    """Settings of ``audit``."""

    store: Annotated[str, Positional(), Metavar("STORE"), Place()] = Field(
        description="Store of labelled training images."
    )
    alpha: float = Field(0.05, gt=0, lt=1, description="Family-wise error rate.")
    family: Literal["all", "class"] = Field(
        "all", description="Holm's family: all tests together, or one family per class."
    )
    max_n: int = Field(
        5000,
        ge=3,
        le=5000,
        description="Maximum number of samples tested per class. Larger classes are sampled at random.",
    )
    seed: int = Field(0, ge=0, description="Seed of the random sample.")
    fail_above: Fraction | None = Field(
        None, description="Exit with code 1 if a larger share of the tests rejects normality."
    )


class ScoreConfig(RayJobConfig, DeviceConfig, StoreReadingConfig):
    """Settings of ``score``; those of the network and its devices are only for images."""

    gaussians: Annotated[str, Positional(), Metavar("MODEL"), Place(shared=False)] = Field(
        description="Model made by `fit`."
    )
    store: Annotated[str | None, Metavar("STORE"), Place()] = Field(None, description="Score the rows of this store.")
    data: Annotated[str | None, Metavar("URI"), Place()] = Field(None, description="Score these images.")
    network: Annotated[str | None, Metavar("NAME")] = Field(
        None,
        description="With --data: the network. Default: the one the model was fitted on, if it is a preset or one of "
        "timm or torchvision.",
    )
    out: Annotated[str, Metavar("SCORES.parquet"), Place(written=True)] = Field(
        description="Result: key, pred, score, accepted."
    )
    overwrite: bool = Field(False, description="Replace an existing result of the same kind.")
    threshold: float | None = Field(None, description="Accept scores at or above this.")
    accept_known: Fraction | None = Field(
        None, description="Choose the threshold that accepts this share of the store --known."
    )
    accept_fpr: Fraction | None = Field(
        None, description="Choose the threshold that accepts at most this share of the store --unknown."
    )
    known: Annotated[str | None, Metavar("STORE"), Place()] = Field(None, description="Known store for --accept-known.")
    unknown: Annotated[str | None, Metavar("STORE"), Place()] = Field(
        None, description="Unknown store for --accept-fpr."
    )

    @model_validator(mode="after")
    def _consistent(self) -> ScoreConfig:
        if (self.store is None) == (self.data is None):
            raise ValueError("exactly one of `store` and `data` is needed")
        for name in ("network", *DeviceConfig.model_fields):
            if self.data is None and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"`{name}` needs `data`: the rows of a store are already embedded")
        if sum(x is not None for x in (self.threshold, self.accept_known, self.accept_fpr)) > 1:
            raise ValueError("only one of `threshold`, `accept_known`, `accept_fpr` may be given")
        if (self.accept_known is None) != (self.known is None):
            raise ValueError("`accept_known` and `known` must be given together")
        if (self.accept_fpr is None) != (self.unknown is None):
            raise ValueError("`accept_fpr` and `unknown` must be given together")
        return self


class EvaluateConfig(OutputConfig, StoreReadingConfig):
    """Settings of ``evaluate``."""

    fit: Annotated[str, Metavar("STORE"), Place()] = Field(description="Store of labelled training images, to fit on.")
    known: Annotated[str, Metavar("STORE"), Place()] = Field(description="Store of labelled test images.")
    unknown: Annotated[Pairs, Metavar("NAME=STORE"), Place()] = Field(
        description="Store of unknown images and a name for it. May be repeated.", min_length=1
    )
    methods: Annotated[Words, Metavar("NAMES"), Catalogue("methods")] = Field(
        DEFAULT_METHODS,
        description="Methods, separated by commas, or `all`; options after a colon, as in knn:k=10. Listed below.",
        min_length=1,
    )
    group: Annotated[Pairs, Metavar("NAME=A,B")] = Field(
        {}, description="Unknown sets to average under one name (near=ssb_hard,ninco). May be repeated."
    )
    images: Annotated[Pairs, Metavar("NAME=PLACE")] = Field(
        {},
        description="Where the images of a set are (known=…, or the name of an unknown set), for the pictures in the "
        "report. Default: where its store says, if that is on this machine or in the store's bucket. May be repeated.",
    )
    draws: int = Field(10, ge=2, le=1000, description="Number of random draws in the significance test.")
    draw_size: int = Field(1000, ge=10, description="Knowns and unknowns per draw.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")


class ReportConfig(JobConfig):
    """Settings of ``report``."""

    folders: Annotated[Words, Positional(), Metavar("DIR")] = Field(
        description="Results to show: audits, evaluations, models, versions, or folders of them.", min_length=1
    )
    out: Annotated[str | None, Metavar("FILE.html")] = Field(
        None, description="The page. Default: report.html in the first folder."
    )
    title: str = Field("GHOST report", description="Title of the page.", max_length=200)
    plots: bool = Field(True, description="Also write every figure as PNG, SVG and PDF into plots/ beside the page.")
    overwrite: bool = Field(True, description="Replace an existing page. Other files are never replaced.")


class DemoConfig(RayJobConfig):
    """Settings of ``demo``."""

    out: Annotated[str, Metavar("DIR"), Place(written=True)] = Field(
        "ghost-demo", description="Folder for everything the demo makes."
    )
    overwrite: bool = Field(False, description="Replace an earlier demo.")
    methods: Annotated[Words, Metavar("NAMES"), Catalogue("methods")] = Field(
        # A hundredth of the 543 training images would be five.
        (*DEFAULT_METHODS[:-1], "nnguide:k=10:fraction=1"),
        description="Methods to compare, separated by commas, or `all`, as for `evaluate`. Listed below.",
        min_length=1,
    )
