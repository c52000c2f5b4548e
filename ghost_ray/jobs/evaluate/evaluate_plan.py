"""What an evaluation will do, settled and checked before any Ray starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ghost_ray.config import EvaluateConfig
from ghost_ray.errors import InputError, nearest, one_line, redact
from ghost_ray.files.manifest import of_unnamed_networks, require_same_network
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.rows import Head
from ghost_ray.scorers import Scorer, ShardedScorer, create, names, options_of, scorer_class
from ghost_ray.store import UNKNOWN, ArrayStore, Store

KNOWN = "known"  # the name of the known test set among the sets scored
ALL = "all"
# Training embeddings up to which threads are soon done with fits by class and with banks. Such fits hold the
# interpreter's lock, and banks take memory: beyond it, the processes of a local Ray are worth their start.
_HEAVY_BYTES = 256 << 20


@dataclass(frozen=True)
class Plan:
    """Stores opened and matched, methods bound to their network, groups resolved."""

    fit: BatchReader
    sets: dict[str, BatchReader]  # the known set first, then the unknown sets by name
    scorers: dict[str, Scorer]
    groups: dict[str, list[str]]
    notes: list[str]

    @property
    def unknowns(self) -> list[str]:
        """Names of the unknown sets."""
        return [name for name in self.sets if name != KNOWN]

    @property
    def light(self) -> bool:
        """Whether threads of one process do for this, where no cluster is named."""
        by_class = any(scorer.by_class for scorer in self.scorers.values())
        banks = any(isinstance(scorer, ShardedScorer) for scorer in self.scorers.values())
        store = self.fit.store
        if isinstance(store, ArrayStore):
            return True  # in memory and sorted already
        return not (by_class or banks) or 4 * store.rows * store.dimensions <= _HEAVY_BYTES


def make_plan(config: EvaluateConfig) -> Plan:
    """Open and check everything that was named; InputError says what is wrong with the first thing that is."""
    fit = Store.open(config.fit, "fit", verify=config.verify)
    known = Store.open(config.known, "known", verify=config.verify)
    unknown = {name: Store.open(uri, "unknown", verify=config.verify) for name, uri in config.unknown.items()}
    return plan_for(config, fit, known, unknown)


def plan_for(config: EvaluateConfig, fit: Store, known: Store, unknown: dict[str, Store]) -> Plan:
    """Check stores that are open already, and what is to be done with them."""
    if KNOWN in config.unknown:
        raise InputError("unknown", KNOWN, "is the name of the known set", "choose another name")
    for name in config.images:
        if name not in (KNOWN, *config.unknown):
            hint = nearest(name, config.unknown) or "sets: " + ", ".join((KNOWN, *config.unknown))
            raise InputError("images", name, "is not the name of a set", hint)
    groups = _groups(config)
    for field, store in [("fit", fit), ("known", known), *(("unknown", store) for store in unknown.values())]:
        _require_rows(store, field)
    for field, store in [("known", known), *(("unknown", store) for store in unknown.values())]:
        require_same_network(
            fit.manifest.network, f"`fit` {redact(fit.uri)}", store.manifest.network, redact(store.uri), field
        )
    _require_labels(fit, known, unknown)
    readers = {KNOWN: BatchReader.of(known, "known")}
    readers |= {name: BatchReader.of(store, "unknown") for name, store in unknown.items()}
    training = BatchReader.of(fit, "fit")
    head = next((reader.head for reader in (training, *readers.values()) if reader.head is not None), None)
    scorers, notes = _bound(config, fit, head)
    # Arrays of one call are of one network; stores may come from anywhere.
    if not isinstance(fit, ArrayStore):
        networks = {name: store.manifest.network for name, store in {KNOWN: known, **unknown}.items()}
        notes = [*of_unnamed_networks("fit", fit.manifest.network, networks), *notes]
    return Plan(training, readers, scorers, groups, notes)


def _require_rows(store: Store, field: str) -> None:
    if store.rows == 0:
        raise InputError(field, redact(store.uri), "is empty: it has no rows", "extract or import some images into it")


def _require_labels(fit: Store, known: Store, unknown: dict[str, Store]) -> None:
    if _labels(fit)[1] == UNKNOWN:
        raise InputError("fit", redact(fit.uri), "has no labelled rows", "extract it without `unknown`")
    if _labels(known)[0] == UNKNOWN:
        raise InputError("known", redact(known.uri), "has rows without a label", "extract it without `unknown`")
    for store in unknown.values():
        if _labels(store)[1] != UNKNOWN:
            whole = "holds no unknowns" if _labels(store)[0] != UNKNOWN else "does not hold unknowns alone"
            raise InputError(
                "unknown",
                redact(store.uri),
                f"{whole}: rows are labelled with the network's classes",
                "extract or import it with `unknown`",
            )


def _labels(store: Store) -> tuple[int, int]:
    """The smallest and the largest label of a store."""
    groups = [file.groups[file.groups.rows > 0] for file in store.files if file.rows]
    return int(min(g.first_label.min() for g in groups)), int(max(g.last_label.max() for g in groups))


def _groups(config: EvaluateConfig) -> dict[str, list[str]]:
    groups = {}
    for name, text in config.group.items():
        members = [member.strip() for member in text.split(",") if member.strip()]
        shown = f"{name}={text}"
        if name in config.unknown:
            raise InputError("group", shown, "an unknown set has this name already", "choose another name")
        if not members or len(set(members)) < len(members):
            raise InputError("group", shown, "names no set, or one twice", "write NAME=SET,SET")
        for member in members:
            if member not in config.unknown:
                hint = nearest(member, config.unknown) or "sets: " + ", ".join(config.unknown)
                raise InputError("group", shown, f"there is no `unknown` {member!r}", hint)
        groups[name] = members
    return groups


def named_methods(methods: Sequence[str], seed: int = 0) -> dict[str, Scorer]:
    """The methods by name, not yet bound to a network; InputError for one that there is not, or that is named twice.

    A method that draws anything does so with ``seed``, unless its own options say otherwise.
    """
    if ALL in methods and len(methods) > 1:
        raise InputError("methods", ",".join(methods), "`all` stands alone", "leave out the others")
    scorers: dict[str, Scorer] = {}
    for method in names() if ALL in methods else methods:
        try:
            draws = any(option.name == "seed" for option in options_of(scorer_class(method)))
            scorer = create(method, **({"seed": seed} if draws else {}))
        except ValueError as error:
            raise InputError("methods", method, one_line(error)) from None
        except ImportError as error:
            raise InputError("methods", method, one_line(error), "pip install 'ghost-ray[pytorch-ood]'") from None
        twin = next((name for name, other in scorers.items() if other.same_as(scorer)), None)
        if twin is not None:
            problem = "names a method twice" + (f": {twin} is {method}" if twin != method else "")
            raise InputError("methods", ",".join(methods), problem, "name each once")
        scorers[method] = scorer
    return scorers


def _bound(config: EvaluateConfig, fit: Store, head: Head | None) -> tuple[dict[str, Scorer], list[str]]:
    """The methods bound to the network; of ``all``, those that the network allows."""
    scorers, notes = {}, []
    for name, scorer in named_methods(config.methods, config.seed).items():
        try:
            scorers[name] = scorer.bind(fit.classes, fit.dimensions, head)
        except ValueError as error:
            if ALL in config.methods:
                notes.append(f"{name} is left out: {one_line(error)}")
                continue
            lacks_head = head is None and scorer.needs_head
            hint = f"import the stores with `head=HEAD.safetensors`, or leave out {name}" if lacks_head else ""
            raise InputError("methods", name, one_line(error), hint) from None
    return scorers, notes
