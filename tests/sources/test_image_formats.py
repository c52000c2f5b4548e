"""The entries of the image formats: complete, and refused where a name is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.raw_sources import images_of, refusal, tar_members, write_folder, write_list, write_parquet, write_tar

from ghost_ray.sources import ImageFormat, fingerprint_of, formats, open_source, register, unregister
from ghost_ray.sources.image_formats import image_format


@pytest.mark.parametrize("entry", formats(), ids=lambda entry: entry.name)
def test_every_format_explains_itself(entry: ImageFormat) -> None:
    assert image_format(entry.name) is entry
    assert entry.text
    assert not entry.text.endswith(".")


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ValueError, match="two image formats are named 'list'"):
        register(image_format("list"))


def test_the_quick_fingerprint_is_that_of_the_open_source(tmp_path: Path) -> None:
    images = images_of(6)
    for name in ("tars", "tables", "flat"):
        (tmp_path / name).mkdir()
    for label, name, data in images:
        (tmp_path / "flat" / f"{label}-{name}").write_bytes(data)
    write_tar(tmp_path / "tars" / "a.tar", tar_members(images))
    write_parquet(tmp_path / "tables" / "a.parquet", images)
    write_list(tmp_path / "list.txt", write_folder(tmp_path / "folder", images), images)
    found = {}
    for name in ("folder", "flat", "tars", "tables", "list.txt"):
        source = open_source(str(tmp_path / name))
        found[source.kind] = fingerprint_of(str(tmp_path / name)) == source.fingerprint
    assert found == {entry.name: True for entry in formats()}


def test_a_file_that_two_formats_claim_is_not_guessed(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", tar_members(images_of(1)))
    tar = image_format("webdataset")
    register(ImageFormat("other", "also tars", tar.is_file, tar.is_folder, tar.open))
    try:
        assert "may be any of webdataset, other" in refusal(tmp_path / "a.tar")
        assert "more than one format: webdataset, other" in refusal(tmp_path)
        assert open_source(str(tmp_path), format="other").preview.items.num_rows == 1
    finally:
        unregister("other")
