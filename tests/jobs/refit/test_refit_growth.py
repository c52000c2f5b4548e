"""Data that only grew, and data that did not: when an old store is a base for a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.refits import write_pictures

from ghost_ray.config import ExtractConfig
from ghost_ray.files.manifest import provenance
from ghost_ray.jobs.extract.plan import list_images, make_plan
from ghost_ray.jobs.refit import growth
from ghost_ray.store import StoreManifest, finish_store


@pytest.mark.parametrize("change", ["smaller", "renamed", "another size", "another place"])
def test_data_that_did_not_only_grow_is_no_base(tmp_path: Path, change: str) -> None:
    write_pictures(tmp_path / "train", 3, seed=1)
    config = ExtractConfig(data=str(tmp_path / "train"), model="support.networks:small", out=str(tmp_path / "store"))
    plan = make_plan(config)
    growth._write_listing(config.out, list_images(plan).select(growth._FACTS))
    made = StoreManifest(
        **provenance(config),
        network=plan.network,
        data=[plan.data],
        rows=0,
        class_names=plan.class_names,
        layout="clustered",
    )
    finish_store(config.out, made, [])

    def is_base() -> bool:
        now = make_plan(config)
        return growth._fitting(config.out, config, now, list_images(now).select(growth._FACTS)) is not None

    assert not is_base()  # nothing is new
    write_pictures(tmp_path / "train", 1, seed=2, first=8)
    assert is_base()
    one = tmp_path / "train" / "ant" / "0000.png"
    if change == "smaller":
        one.unlink()
    elif change == "renamed":
        one.rename(one.with_name("0007.png"))
    elif change == "another size":
        one.write_bytes((tmp_path / "train" / "bee" / "0001.png").read_bytes() + b"\0")
    else:
        (tmp_path / "train").rename(tmp_path / "moved")
        config = config.model_copy(update={"data": str(tmp_path / "moved")})
    assert not is_base()
