"""Machine code for the loops that numpy would need several passes over memory for."""

from __future__ import annotations

import hashlib
import inspect
import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
_COMPILING = threading.RLock()  # numba's setting for the cache belongs to the whole process


def compiled(*, reassociate: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function of arrays with numba when it is first called, once for all the processes of a user.

    Machine code is kept in the user's cache folder, or where NUMBA_CACHE_DIR says; where neither can be written, each
    process compiles for itself.

    The function runs without the interpreter's lock and on one thread: callers add processes or threads. It may call
    other compiled functions of its own file only: the cache would not see a change in another file.

    Parameters
    ----------
    reassociate : bool, default=False
        Let sums be regrouped so that they use vector registers. The result stays the same from call to call on
        one machine; NaN and infinity keep their meaning.
    """
    fastmath = {"reassoc", "contract", "nsz"} if reassociate else {"contract"}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return _Loop(function, fastmath)

    return decorate


class _Loop(Generic[P, R]):
    """A function that is compiled when it is first called: numba takes longer to import than many commands to run."""

    def __init__(self, function: Callable[P, R], fastmath: set[str]) -> None:
        self._function, self._fastmath = function, fastmath
        self._fast: Callable[P, R] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        fast = self._fast or self.machine_code()
        return fast(*args, **kwargs)

    def machine_code(self) -> Callable[P, R]:
        """The compiled function."""
        with _COMPILING:
            if self._fast is None:
                # numba must find machine code where this function calls others of its file.
                names = self._function.__globals__
                for name in self._function.__code__.co_names:
                    if isinstance(names.get(name), _Loop):
                        names[name] = names[name].machine_code()
                self._fast = _with_numba(self._function, self._fastmath)
            return self._fast


def _with_numba(function: Callable[P, R], fastmath: set[str]) -> Callable[P, R]:
    import numba

    config: Any = numba.config
    chosen_by_user = config.CACHE_DIR
    folders = (chosen_by_user, _own_folder(inspect.getfile(function)))
    # Without a folder numba would write beside the source file, into an installed package.
    folder = next((place for place in folders if _can_be_written(place)), "")
    # numba reads its setting while it decorates, and at no other time. It is put back at once, so that the
    # functions of other libraries are cached where they always were.
    config.CACHE_DIR = folder
    try:
        fast: Callable[P, R] = numba.njit(nogil=True, fastmath=fastmath, cache=bool(folder))(function)
    finally:
        config.CACHE_DIR = chosen_by_user
    return fast


@cache
def _own_folder(source: str) -> str:
    """The folder in the user's cache for the compiled functions of a source file; empty where there can be none.

    Its name includes everything that the machine code depends on: other versions of the source or of numba, and other
    processors that share the home, have separate folders.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # the XDG specification says to ignore it then
        home = os.path.expanduser("~/.cache")
    if not os.path.isabs(home):
        return ""  # a user without a home
    import numba
    from llvmlite import binding as llvm

    made_of = [numba.__version__, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    try:
        made_of += [Path(file).read_text() for file in (__file__, source)]
    except OSError:
        return ""  # installed without its sources
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()
    return os.path.join(home, "ghost_ray", "compiled", f"{Path(source).stem}-{digest[:16]}")


@cache
def _can_be_written(folder: str) -> bool:
    """Whether files of the usual size find room in a folder, which is made where it is missing."""
    if not folder:
        return False
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 18))
    except OSError:
        return False
    return True


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to.

    numba compiles a function again for read-only arrays, which Arrow and Ray return; passing every input as one avoids
    the second compilation.
    """
    view = array.view()
    view.flags.writeable = False
    return view
