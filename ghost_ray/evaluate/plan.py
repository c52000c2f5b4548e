"""What an evaluation will do, settled and checked before any Ray starts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from ghost_ray.config import EvaluateConfig
from ghost_ray.errors import InputError, nearest, one_line
from ghost_ray.evaluate.batches import BatchReader
from ghost_ray.files import redact
from ghost_ray.manifest import require_same_network
from ghost_ray.scorers import Head, Scorer, create, names
from ghost_ray.store import UNKNOWN, Store

KNOWN = "known"  # the name of the known test set among the sets scored
ALL = "all"


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


def make_plan(config: EvaluateConfig) -> Plan:
    """Open and check everything that was named; InputError says what is wrong with the first thing that is."""
    if KNOWN in config.unknown:
        raise InputError("--unknown", KNOWN, "is the name of the known set", "choose another name")
    groups = _groups(config)
    fit = _open(config.fit, "--fit")
    known = _open(config.known, "--known")
    unknown = {name: _open(uri, "--unknown") for name, uri in config.unknown.items()}
    for field, store in [("--known", known), *(("--unknown", store) for store in unknown.values())]:
        require_same_network(
            fit.manifest.network, f"--fit {redact(fit.uri)}", store.manifest.network, redact(store.uri), field
        )
    _require_labels(fit, known, unknown)
    readers = {KNOWN: BatchReader.of(known, "--known")}
    readers |= {name: BatchReader.of(store, "--unknown") for name, store in unknown.items()}
    training = BatchReader.of(fit, "--fit")
    head = next((reader.head for reader in (training, *readers.values()) if reader.head is not None), None)
    scorers, notes = _scorers(config, fit, head)
    return Plan(training, readers, scorers, groups, notes)


def _open(uri: str, field: str) -> Store:
    store = Store.open(uri, field)
    if store.rows == 0:
        raise InputError(field, redact(uri), "is empty: it has no rows", "extract or import some images into it")
    return store


def _require_labels(fit: Store, known: Store, unknown: dict[str, Store]) -> None:
    if _labels(fit)[1] == UNKNOWN:
        raise InputError("--fit", redact(fit.uri), "has no labelled rows", "extract it without --unknown")
    if _labels(known)[0] == UNKNOWN:
        raise InputError("--known", redact(known.uri), "has rows without a label", "extract it without --unknown")
    for store in unknown.values():
        if _labels(store)[1] != UNKNOWN:
            whole = "holds no unknowns" if _labels(store)[0] != UNKNOWN else "does not hold unknowns alone"
            raise InputError(
                "--unknown",
                redact(store.uri),
                f"{whole}: rows are labelled with the network's classes",
                "extract or import it with --unknown",
            )


def _labels(store: Store) -> tuple[int, int]:
    """The smallest and the largest label of a store."""
    groups = [group for file in store.files for group in file.groups if group.rows]
    return min(g.first_label for g in groups), max(g.last_label for g in groups)


def _groups(config: EvaluateConfig) -> dict[str, list[str]]:
    groups = {}
    for name, text in config.group.items():
        members = [member.strip() for member in text.split(",") if member.strip()]
        shown = f"{name}={text}"
        if name in config.unknown:
            raise InputError("--group", shown, "an unknown set has this name already", "choose another name")
        if not members or len(set(members)) < len(members):
            raise InputError("--group", shown, "names no set, or one twice", "write NAME=SET,SET")
        for member in members:
            if member not in config.unknown:
                hint = nearest(member, config.unknown) or "sets: " + ", ".join(config.unknown)
                raise InputError("--group", shown, f"there is no --unknown {member!r}", hint)
        groups[name] = members
    return groups


def _scorers(config: EvaluateConfig, fit: Store, head: Head | None) -> tuple[dict[str, Scorer], list[str]]:
    """The methods by name, bound to the network; of ``all``, those that the network allows."""
    every = config.methods == (ALL,)
    wanted = names() if every else list(config.methods)
    if len(set(wanted)) < len(wanted):
        raise InputError("--methods", ",".join(wanted), "names a method twice", "name each once")
    scorers, notes = {}, []
    for name in wanted:
        if name == ALL:
            raise InputError("--methods", ",".join(wanted), "`all` stands alone", "leave out the others")
        try:
            scorers[name] = _create(name, config.seed).bind(fit.classes, fit.dimensions, head)
        except ValueError as error:
            if every:
                notes.append(f"{name} is left out: {one_line(error)}")
                continue
            needs_head = head is None and "head" in str(error)
            hint = f"import the stores with --head HEAD.safetensors, or leave out {name}" if needs_head else ""
            raise InputError("--methods", name, one_line(error), hint) from None
        except ImportError as error:
            raise InputError("--methods", name, one_line(error), "pip install 'ghost-ray[pytorch-ood]'") from None
    return scorers, notes


def _create(name: str, seed: int) -> Scorer:
    """A scorer with the evaluation's seed, where it draws anything."""
    scorer = create(name)
    if "seed" in inspect.signature(type(scorer).__init__).parameters:
        return create(name, seed=seed)
    return scorer
