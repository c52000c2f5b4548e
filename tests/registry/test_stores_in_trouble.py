"""A store that refuses, is elsewhere, is down or hangs: six different lines, the right exit code, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fake_endpoints import Trouble, fake_endpoint
from support.fault_table import Fault
from support.object_stores import object_store_in_environment
from support.refits import config_of, write_pictures
from support.registries import make_promoted, make_version

import ghost_ray
from ghost_ray.config import ExtractConfig, FitConfig
from ghost_ray.config.refit_settings import PromoteConfig, RegistryConfig, StatusConfig, VerifyConfig
from ghost_ray.errors import GhostRayError
from ghost_ray.jobs import fit
from ghost_ray.jobs.extract import run as extract
from ghost_ray.jobs.refit import run as refit
from ghost_ray.registry import looking, operations
from ghost_ray.registry.status import status
from ghost_ray.registry.verifying import verify

# Requests to a store that says nothing, three seconds each: with the pauses, 13 to 17 s. Measured in seconds, the test
# would depend on what else the machine does.
MOST_REQUESTS = 4
EXPECTED: dict[Trouble, tuple[int, str]] = {
    "forbidden": (2, "access is denied"),
    "wrong region": (2, "the bucket is in another region"),
    "busy": (1, "the store answers too slowly"),
    "refused": (1, "the store cannot be reached"),
    "hung": (1, "the store answers too slowly"),
}
HELPS: dict[Trouble, str] = {
    "forbidden": "check the credentials and what they allow",
    "wrong region": "set the region that it names",
    "busy": "run it again",
    "refused": "run it again",
    "hung": "run it again",
}


def commands(folder: Path) -> dict[str, Callable[[str], Any]]:
    """Everything that reads from or writes to a store, given a place on one in trouble."""
    local = str(folder / "out")
    return {
        "status": lambda place: status(StatusConfig(root=place)),
        "list": lambda place: looking.list_versions(RegistryConfig(root=place)),
        "promote": lambda place: operations.promote(PromoteConfig(root=place, version="1")),
        "verify": lambda place: verify(VerifyConfig(place=place)),
        "load": lambda place: ghost_ray.load(place),
        "refit": lambda place: refit(config_of(folder, registry=place)),
        "fit": lambda place: fit.run(FitConfig(store=place, out=local)),
        "extract": lambda place: extract(ExtractConfig(data=place, model="resnet18", out=local)),
        "extract to": lambda place: extract(ExtractConfig(data=str(folder / "train"), model="resnet18", out=place)),
    }


def attempt(trouble: Trouble, call: Callable[[str], Any]) -> tuple[GhostRayError, int]:
    """What a command says of a store of its own, and how many connections it made to it."""
    with fake_endpoint(trouble) as store:
        with pytest.raises(GhostRayError) as caught:
            call(store.uri("bucket/place"))
        return caught.value, len(store.connections)


FAULTS: dict[Trouble, str] = {
    "forbidden": "the object store denies access",
    "wrong region": "the bucket is in another region",
    "busy": "the object store asks for fewer requests",
    "refused": "the object store cannot be reached",
    "hung": "the object store says nothing",
}
SLOW = ("busy", "refused", "hung")


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(one, marks=[pytest.mark.fault("registry", what), *([pytest.mark.slow] if one in SLOW else [])])
        for one, what in FAULTS.items()
    ],
)
def test_every_command_says_what_is_wrong_with_the_store(tmp_path: Path, trouble: Trouble, fault: Fault) -> None:
    write_pictures(tmp_path / "train", 2, seed=1)
    code, words = EXPECTED[trouble]
    # All commands at once: they spend their time waiting.
    with fake_endpoint(trouble) as store, ThreadPoolExecutor(16) as pool:
        serving = replace(ghost_ray.load(make_promoted(str(tmp_path / "sound"), "a")), uri=store.uri("bucket/place"))
        refreshed = pool.submit(serving.refresh)
        todo = commands(tmp_path)
        ended = dict(zip(todo, pool.map(partial(attempt, trouble), todo.values()), strict=True))
        assert refreshed.result() is serving
        assert trouble != "hung" or len(store.connections) == 1
    assert words in str(serving.trouble)
    for name, (error, connections) in ended.items():
        assert words in str(error), f"{name}: {error}"
        assert error.exit_code == code, name
        assert "\n" not in str(error), name
        assert "password" not in str(error), name
        assert trouble != "hung" or 0 < connections <= MOST_REQUESTS, name
    assert not (tmp_path / "out").exists()
    fault.ended(f'every command exits {code} in one line, "{words}", and a service keeps what it has; {HELPS[trouble]}')


def test_absent_and_damaged_are_the_other_two(monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store_in_environment(monkeypatch) as store:
        with pytest.raises(GhostRayError, match=r"does not exist|is no registry") as caught:
            status(StatusConfig(root="s3://no-such-bucket/registry"))
        assert caught.value.exit_code == 2
        with pytest.raises(GhostRayError, match="does not exist"):
            fit.run(FitConfig(store=f"s3://{store.bucket}/nowhere", out="out"))
        root = f"s3://{store.bucket}/registry"
        make_version(root, "a")
        with store.filesystem().open_output_stream(f"{store.bucket}/registry/current.json") as handle:
            handle.write(b"{}")
        with pytest.raises(GhostRayError, match=r"current\.json .* restore") as caught:
            ghost_ray.load(root)
        assert caught.value.exit_code == 2
