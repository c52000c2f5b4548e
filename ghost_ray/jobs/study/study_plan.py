"""What a study will do: the images of each set, the stores of each network, and what of all that is there already."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypedDict

import pyarrow.compute as pc

from ghost_ray import published
from ghost_ray.config.limits import EMBEDDING_OPTIONS
from ghost_ray.config.refit_settings import DataSection
from ghost_ray.config.study_settings import StudyConfig, StudyNetwork
from ghost_ray.errors import GateFailed, InputError, redact
from ghost_ray.files import MANIFEST, join, kind_of, read_json, write_json
from ghost_ray.jobs.fingerprints import data_digest, digest, listing_of, named, software_digest

FIT, KNOWN = "fit", "known"
WORK = ".work"
_NAMES = "stores.json"
_READ_AT_ONCE = 4 << 20  # bytes of a shard
_LISTED_AT_ONCE = 1000  # names that an object store lists in one request


@dataclass(frozen=True)
class DataSet:
    """The images of a role as they are now."""

    section: DataSection
    digest: str


class PlannedSet(TypedDict):
    """The images of a role, and what reading them takes."""

    role: str
    data: str
    images: int | None  # None: they are not there
    bytes: int | None  # None: only reading tells
    estimated: bool  # whether the bytes are an estimate
    requests: int | None
    expected: list[int]  # how many images a complete copy has, one number per published version
    problem: str | None


class PlannedNetwork(TypedDict):
    """What would be done for a network."""

    network: str
    model: str
    given: list[str]  # roles whose stores exist and were named
    done: list[str]  # roles extracted by an earlier run
    extract: list[str]
    images: int | None  # to embed
    bytes: int | None
    requests: int | None
    cells: int  # methods × unknown sets
    problem: str | None


class StudyPlan(TypedDict):
    """What a study that is only planned returns."""

    out: str
    plan: bool
    methods: list[str]
    data: list[PlannedSet]
    networks: list[PlannedNetwork]
    images: int  # to embed; each network reads its own
    bytes: int  # of those whose size is known
    estimated: bool  # whether the bytes of some are an estimate
    unsized: bool  # whether there are others
    requests: int


def unknown_role(name: str) -> str:
    """The role of an unknown set."""
    return f"unknown.{name}"


def sections(config: StudyConfig) -> dict[str, DataSection]:
    """Every section of images by its role."""
    found: dict[str, DataSection | None] = {FIT: config.fit, KNOWN: config.known}
    found |= {unknown_role(name): section for name, section in config.unknown.items()}
    return {role: section for role, section in found.items() if section is not None}


def given_stores(network: StudyNetwork) -> dict[str, str]:
    """The stores that a network names, by role."""
    stores = network.stores
    found = {FIT: stores.fit, KNOWN: stores.known} | {unknown_role(name): uri for name, uri in stores.unknown.items()}
    return {role: uri for role, uri in found.items() if uri is not None}


def roles_of(config: StudyConfig, name: str) -> list[str]:
    """The roles of a network's stores; the fit's is the first, since others may be narrowed as it is."""
    return [FIT, KNOWN, *(unknown_role(each) for each in config.sets_of(name))]


def to_extract(config: StudyConfig, name: str) -> list[str]:
    """The roles of a network that are made from images."""
    given = given_stores(config.networks[name])
    return [role for role in roles_of(config, name) if role not in given]


def look_at(role: str, section: DataSection) -> DataSet:
    """The images of a section; InputError says what is wrong with it."""
    with named(role):
        return DataSet(section, data_digest(section, listing_of(section)))


def used_data(config: StudyConfig) -> dict[str, DataSet]:
    """The images of every role that some network extracts."""
    used = {role for name in config.networks for role in to_extract(config, name)}
    return {role: look_at(role, section) for role, section in sections(config).items() if role in used}


def remembered_as(network: StudyNetwork, data: DataSet) -> str:
    """What a store goes by as long as its network has not been loaded: weights are known by place, size and time."""
    file: list[object] = [network.weights]
    if network.weights is not None and os.path.exists(network.weights):
        found = os.stat(network.weights)
        file += [found.st_size, found.st_mtime_ns]
    options = network.model_dump(mode="json", include=set(EMBEDDING_OPTIONS))
    return digest([options, file, data.digest, software_digest()])


def remembered(config: StudyConfig) -> dict[str, str]:
    """Stores that earlier runs made, by `remembered_as`."""
    try:
        content = read_json(join(config.out, WORK, _NAMES))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}


def remember(config: StudyConfig, names: dict[str, str]) -> None:
    """Keep the places of stores for the next plan."""
    write_json(join(config.out, WORK, _NAMES), dict(sorted((remembered(config) | names).items())))


def plan_study(config: StudyConfig, methods: list[str]) -> StudyPlan:
    """Everything that would be done; no cluster is touched, no network loaded and no image read.

    Raises
    ------
    GateFailed
        Where images or stores are not there: with the plan, which names them all.
    """
    wanted = sections(config)
    data = {role: _planned_set(role, section) for role, section in wanted.items()}
    found = {role: look_at(role, wanted[role]) for role, planned in data.items() if planned["problem"] is None}
    networks = [_planned_network(config, name, methods, data, found) for name in config.networks]
    read = [data[role] for network in networks for role in network["extract"]]
    plan: StudyPlan = {
        "out": config.out,
        "plan": True,
        "methods": methods,
        "data": list(data.values()),
        "networks": networks,
        "images": sum(network["images"] or 0 for network in networks),
        "bytes": sum(part["bytes"] or 0 for part in read),
        "estimated": any(part["estimated"] for part in read),
        "unsized": any(part["images"] is not None and part["bytes"] is None for part in read),
        "requests": sum(part["requests"] or 0 for part in read),
    }
    missing = [f"{part['role']} ({part['data']})" for part in data.values() if part["problem"]]
    missing += [f"{network['network']}: {network['problem']}" for network in networks if network["problem"]]
    if missing:
        raise GateFailed(f"not everything that the study needs is there: {'; '.join(missing)}", plan)
    return plan


def _planned_set(role: str, section: DataSection) -> PlannedSet:
    from ghost_ray.jobs.study.image_sizes import bytes_of
    from ghost_ray.sources import list_all, open_source, select

    expected = list(published.images_of(role.removeprefix("unknown."))) if role not in (FIT, KNOWN) else []
    planned: PlannedSet = {
        "role": role,
        "data": redact(section.data),
        "images": None,
        "bytes": None,
        "estimated": False,
        "requests": None,
        "expected": expected,
        "problem": None,
    }
    try:
        source = list_all(open_source(section.data, section.format, section.root))
    except InputError as error:
        return {**planned, "problem": error.problem}
    items = select(source.preview.items, section.limit, section.per_class, section.seed)
    size, estimated = bytes_of(source, items)
    files = int(pc.count_distinct(items["file"]).as_py())
    # A file is opened, which asks for its size, and read: an image in one request, a shard in several.
    reads = files if files == items.num_rows else files + (size or 0) // _READ_AT_ONCE
    return {
        **planned,
        "images": items.num_rows,
        "bytes": size,
        "estimated": estimated,
        "requests": files + reads + -(-source.preview.images // _LISTED_AT_ONCE),
    }


def _planned_network(
    config: StudyConfig, name: str, methods: list[str], data: dict[str, PlannedSet], found: dict[str, DataSet]
) -> PlannedNetwork:
    network = config.networks[name]
    given = given_stores(network)
    made = remembered(config)
    done: list[str] = []
    left: list[str] = []
    for role in to_extract(config, name):
        place = made.get(remembered_as(network, found[role])) if role in found else None
        (done if place is not None and _is_whole(join(config.out, name, "stores", place)) else left).append(role)
    counted = [data[role] for role in left]
    return {
        "network": name,
        "model": network.model or "stores",
        "given": list(given),
        "done": done,
        "extract": left,
        "images": _total([part["images"] for part in counted]),
        "bytes": _total([part["bytes"] for part in counted]),
        "requests": _total([part["requests"] for part in counted]),
        "cells": len(methods) * len(config.sets_of(name)),
        "problem": _network_problem(network, given),
    }


def _network_problem(network: StudyNetwork, given: dict[str, str]) -> str | None:
    absent = [redact(uri) for uri in given.values() if not _is_whole(uri)]
    if network.weights is not None and "://" not in network.weights and not os.path.exists(network.weights):
        absent.append(network.weights)
    return f"{', '.join(absent)} is not there" if absent else None


def _is_whole(folder: str) -> bool:
    return kind_of(join(folder, MANIFEST)) == "file"


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
