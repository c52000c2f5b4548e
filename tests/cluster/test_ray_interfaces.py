"""One module alone uses what Ray does not promise to keep; which names those are, Ray's own annotations say."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ghost_ray

PACKAGE = Path(ghost_ray.__file__).parent
DOOR = PACKAGE / "cluster" / "ray_interfaces.py"


def is_promised(holder: object, name: str, found: object) -> bool:
    """Whether ``holder.name`` is public and stable: a module, annotated so, or a plain attribute of what is."""
    from ray.util.annotations import AnnotationType

    if name.startswith("_"):
        return False
    if inspect.ismodule(found):
        return True
    if getattr(found, "_annotated", None) == getattr(found, "__name__", ""):
        says_so = (found.__doc__ or "").partition("**PublicAPI (")[2]  # where Ray itself keeps alpha and beta
        return getattr(found, "_annotated_type", None) is AnnotationType.PUBLIC_API and not says_so
    return not inspect.ismodule(holder)  # what is not annotated in a public class is part of it


class Uses(ast.NodeVisitor):
    """Names of Ray that a source uses: imported, or reached through attributes of what was imported."""

    def __init__(self, tree: ast.AST) -> None:
        self.known: dict[str, tuple[object, str]] = {}  # what an expression stands for, and its full name
        self.used: list[tuple[str, bool]] = []  # full name, and whether Ray promises it
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imported(node)
            elif isinstance(node, ast.Assign) and "'ray'" in ast.unparse(node.value):
                self.known[ast.unparse(node.targets[0])] = (importlib.import_module("ray"), "ray")  # sys.modules
            elif isinstance(node, ast.Assign) and ast.unparse(node.value) in self.known:
                self.known[ast.unparse(node.targets[0])] = self.known[ast.unparse(node.value)]
        self.visit(tree)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "ray":
                    self._path(alias.name)
                    bound = alias.name if alias.asname else "ray"
                    self.known[alias.asname or "ray"] = (importlib.import_module(bound), bound)
        elif node.module and node.module.split(".")[0] == "ray" and not node.level:
            self._path(node.module)
            module = importlib.import_module(node.module)
            for alias in node.names:
                found = self._get(module, node.module, alias.name)
                self.known[alias.asname or alias.name] = (found, f"{node.module}.{alias.name}")

    def _path(self, module: str) -> None:
        private = [part for part in module.split(".") if part.startswith("_")]
        self.used.append((module, not private))

    def _get(self, holder: object, path: str, name: str) -> object:
        try:
            found = getattr(holder, name)
        except AttributeError:
            found = importlib.import_module(f"{path}.{name}") if isinstance(holder, ModuleType) else None
        self.used.append((f"{path}.{name}", is_promised(holder, name, found)))
        return found

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        text = ast.unparse(node.value)
        if text in self.known:
            holder, path = self.known[text]
            found = self._get(holder, path, node.attr)
            if inspect.ismodule(found) or inspect.isclass(found):
                self.known[ast.unparse(node)] = (found, f"{path}.{node.attr}")
        elif node.attr.startswith("_") and any(
            ast.unparse(part) in self.known for part in ast.walk(node.value) if isinstance(part, ast.Call | ast.Name)
        ):
            self.used.append((ast.unparse(node), False))  # of whatever a call of Ray's returned


def unpromised(source: str) -> list[str]:
    return sorted({name for name, promised in Uses(ast.parse(source)).used if not promised})


def test_only_what_ray_promises_to_keep() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file != DOOR]
    found = {file.relative_to(PACKAGE).as_posix(): unpromised(file.read_text()) for file in files}
    assert {name: used for name, used in found.items() if used} == {}, f"use them in {DOOR.name}; say there what for"


def test_the_door_says_what_each_name_is_used_for() -> None:
    tree = ast.parse(DOOR.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    said = " ".join(ast.get_docstring(function) or "" for function in functions)
    found = unpromised(DOOR.read_text())
    assert "ray.nodes" in found
    assert len(found) <= 5
    assert [name for name in found if name.rpartition(".")[2] not in said] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import ray\nray.get(x)", []),
        ("import ray\nray.nodes()", ["ray.nodes"]),
        ("import ray as r\nr.nodes()", ["ray.nodes"]),
        ("def f():\n    from ray.data import DataContext\n    DataContext._set_current(1)",
         ["ray.data.DataContext", "ray.data.DataContext._set_current"]),
        ("from ray.data import Datasource, ActorPoolStrategy", []),
        ("from ray.data.checkpoint import CheckpointConfig", ["ray.data.checkpoint.CheckpointConfig"]),
        ("from ray.data import ExecutionResources", ["ray.data.ExecutionResources"]),
        ("import ray._private.state", ["ray._private.state"]),
        ("import ray\nray._private.state.nodes()", ["ray._private", "ray._private.state.nodes"]),
        ("import ray\nray.get_runtime_context()._x", ["ray.get_runtime_context()._x"]),
        ("import sys\nray = sys.modules.get('ray')\nray.nodes()", ["ray.nodes"]),
        ("import ray\nself._ray = ray\nself._ray.nodes()", ["ray.nodes"]),
        ("from ray.autoscaler.sdk import request_resources as ask", ["ray.autoscaler.sdk.request_resources"]),
        ("import ray\nray.exceptions.RayChannelError", ["ray.exceptions.RayChannelError"]),
        ("from ghost_ray.cluster import tasks\ntasks._threads", []),
    ],
)  # fmt: skip
def test_the_scan_sees(source: str, names: list[str]) -> None:
    assert unpromised(source) == names


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ghost_ray.cli", ["ray", "torch"]),
        ("ghost_ray.cluster.ray_interfaces", ["ray", "torch"]),
        ("ghost_ray.jobs.extract.decode", ["torch"]),
        ("ghost_ray.jobs.extract.job", ["ray", "torch"]),
    ],
)
def test_imports_stay_light(module: str, absent: list[str]) -> None:
    program = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
