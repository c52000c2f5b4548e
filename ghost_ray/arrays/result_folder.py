"""A result of a job, seen from Python: read from its folder, shown, drawn, kept elsewhere."""

from __future__ import annotations

import io
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ghost_ray.errors import InputError, redact
from ghost_ray.files import MANIFEST, OutputFolder, join, open_input, read_json, resolve
from ghost_ray.files.manifest import Manifest, read_manifest, write_manifest
from ghost_ray.report.plots import drawing, figures_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Scratch:
    """A folder for the result of a call on arrays; it is deleted with the last reference to the result."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ghost_ray-")
        self.out = join(self._folder.name, "result")


class ResultFolder:
    """What audits and evaluations have in common. Made by the calls on arrays, or by `load`."""

    manifest_kind: ClassVar[type[Manifest]]
    made_by: ClassVar[str]

    def __init__(self, uri: str, scratch: Scratch | None = None) -> None:
        self._uri, self._scratch = uri, scratch
        self._manifest = read_manifest(uri, self.manifest_kind, "uri", self.made_by)

    @classmethod
    def load(cls, uri: str) -> Self:
        """The result in a folder, of a command or of `save`."""
        return cls(str(uri))

    def save(self, out: str, *, overwrite: bool = False) -> None:
        """Write the result where ``ghost-ray report`` and others find it, in the format of the command."""
        source = resolve(self._uri)
        with OutputFolder(str(out), kind=self._manifest.kind, overwrite=overwrite) as output:
            target = resolve(output.staging)
            fs.copy_files(source[1], target[1], source_filesystem=source[0], destination_filesystem=target[0])
            settings = {**self._manifest.config, "out": redact(str(out))}
            written = {name: value for name, value in (self._manifest.digests or {}).items() if name != MANIFEST}
            write_manifest(output.staging, self._manifest.model_copy(update={"config": settings}), written)
            output.publish()

    def figures(self) -> dict[str, Figure]:
        """Every figure of the report's section on this result, by name."""
        return figures_in(self._uri)

    def plot(self, name: str | None = None) -> Figure:
        """One figure, a matplotlib object that notebooks show; by default the first.

        Parameters
        ----------
        name : str, optional
            One of `figures`.
        """
        drawn = self.figures()
        if not drawn:
            raise InputError("name", name or "", "there is nothing to draw in this result")
        if name is not None and name not in drawn:
            raise InputError("name", name, f"is not a figure of this result; the figures are {', '.join(drawn)}")
        figure = drawn[name or next(iter(drawn))]
        # The figure belongs to no window, so notebooks show it only with these methods.
        vars(figure)["_repr_png_"] = lambda: _png(figure)
        return figure

    def _json(self, name: str) -> Any:
        return read_json(join(self._uri, name))

    def _table(self, name: str) -> pa.Table:
        with open_input(join(self._uri, name)) as handle:
            return pq.read_table(handle)


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    with drawing():
        figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()
