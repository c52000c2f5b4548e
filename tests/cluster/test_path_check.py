"""Local places that a node does not see are refused before the work begins; object stores need no such care."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.fault_table import Fault
from support.job_processes import Ended, run
from support.object_stores import ObjectStore, object_store_in_environment
from support.refits import write_checkpoint, write_world
from support.two_nodes import TwoNodes, two_nodes

from ghost_ray.config import EvaluateConfig, PlaceUse, places_of
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import InputError
from ghost_ray.files import OutputFolder, kind_of, output_file, write_bytes
from ghost_ray.store import Store


def test_the_places_of_nested_settings_have_their_whole_names() -> None:
    given = {
        "registry": "r",
        "network": {"model": "m", "weights": "w"},
        "fit": {"data": "f"},
        "known": {"data": "k"},
        "unknown": {"a": {"data": "u"}},
    }
    found = list(places_of(RefitConfig.model_validate(given)))
    names = {use.field: use.uri for use in found}
    assert names == {"registry": "r", "network.weights": "w", "fit.data": "f", "known.data": "k", "unknown.a.data": "u"}
    assert [use.field for use in found if use.written] == ["registry"]


def test_every_store_of_an_evaluation_is_a_place() -> None:
    given = {"fit": "f", "known": "k", "unknown": {"a": "x", "b": "y"}, "out": "o"}
    found = set(places_of(EvaluateConfig.model_validate(given)))
    assert found >= {PlaceUse("unknown", "x", False), PlaceUse("unknown", "y", False), PlaceUse("out", "o", True)}


def test_a_result_that_would_vanish_with_its_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "session" / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    with pytest.raises(InputError, match=r"^out 'models/x': is in Ray's copy of the working directory.*s3://"):
        OutputFolder("models/x")
    with pytest.raises(InputError, match="is deleted with the job"), output_file("scores.parquet", overwrite=False):
        pass
    OutputFolder(str(tmp_path / "model"))
    assert list(copy.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestTwoNodes:
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls) -> Iterator[ObjectStore]:
        with pytest.MonkeyPatch.context() as patch, object_store_in_environment(patch) as made:
            yield made

    @pytest.fixture(scope="class")
    @classmethod
    def nodes(cls, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
        hidden = tmp_path_factory.mktemp("nodes") / "hidden"
        hidden.mkdir()
        # Each machine has a cache of its own.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(hidden.parent / "first"))
            with two_nodes(hidden, XDG_CACHE_HOME=str(hidden.parent / "second")) as running:
                write_world(hidden)
                yield running

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The same in a folder that both see."""
        folder = tmp_path_factory.mktemp("shared")
        write_world(folder)
        return folder

    def extraction(self, nodes: TwoNodes, **places: object) -> Ended:
        words = [word for name, place in places.items() for word in (f"--{name}", str(place))]
        return run("extract", *words, "--model", "support.networks:small", "--address", nodes.address)

    @pytest.mark.fault("extract", "a node does not see a local folder or file")
    @pytest.mark.parametrize("name", ["out", "data", "weights"])
    def test_a_place_that_one_node_does_not_see_is_refused(
        self, nodes: TwoNodes, shared: Path, name: str, fault: Fault
    ) -> None:
        places = {"out": shared / "out" / "store", "data": shared / "train", "weights": shared / "weights.safetensors"}
        places[name] = nodes.hidden / places[name].relative_to(shared)
        ended = self.extraction(nodes, **places)
        assert ended.code == 2
        assert f"--{name} '{places[name]}': the node " in ended.errors
        assert "does not see it — use a file system that all nodes share" in ended.errors
        assert "Traceback" not in ended.errors
        assert not list(nodes.hidden.glob(".ghost_ray*"))
        fault.ended("exit 2 in one line that names the node; no work is started")

    def test_so_is_a_registry(self, nodes: TwoNodes, shared: Path) -> None:
        config = {
            "registry": str(nodes.hidden / "registry"),
            "network": {"model": "support.networks:small", "weights": str(shared / "weights.safetensors")},
            "fit": {"data": str(shared / "train")},
        }
        (shared / "refit.yaml").write_text(yaml.safe_dump(config))
        ended = run("refit", "--config", str(shared / "refit.yaml"), "--address", nodes.address)
        assert ended.code == 2
        assert f"--registry '{config['registry']}': the node " in ended.errors

    @pytest.mark.fault("extract", "a node has other weights than the plan was made with")
    def test_object_stores_serve_all_nodes_and_weights_reach_each_once(
        self, nodes: TwoNodes, shared: Path, store: ObjectStore, fault: Fault
    ) -> None:
        from pyarrow import fs

        bucket = store.filesystem()
        fs.copy_files(str(shared / "train"), f"{store.bucket}/train", destination_filesystem=bucket)
        place = f"s3://{store.bucket}"
        write_bytes(f"{place}/weights.safetensors", (shared / "weights.safetensors").read_bytes())
        places = {"data": f"{place}/train", "weights": f"{place}/weights.safetensors"}
        # The actor is where the GPU is, on the second node; the plan is made on the first.
        ended = self.extraction(nodes, **places, out=f"{place}/store", actors="1")
        assert ended.result()["rows"] == 80
        assert Store.open(f"{place}/store").rows == 80
        assert store.seen.count(("GET", f"/{store.bucket}/weights.safetensors")) == 2

        # What the second node holds is not what the plan is made with.
        (copy,) = (nodes.hidden.parent / "second").rglob("weights.safetensors")
        write_checkpoint(copy, shared / "train", seed=1)
        ended = self.extraction(nodes, **places, out=f"{place}/mixed", actors="1")
        assert ended.code == 2
        assert f"--weights '{places['weights']}': " in ended.errors
        assert "reads other tensors" in ended.errors
        assert kind_of(f"{place}/mixed") == "nothing"
        fault.ended("exit 2 in one line; nothing is published")
