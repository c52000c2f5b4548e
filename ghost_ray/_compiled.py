"""Machine code for the loops that numpy would need several passes over memory for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")


def compiled(*, reassociate: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function of arrays with numba, once for all the processes of a machine.

    The function runs without the interpreter's lock and on one thread: callers add processes or threads.

    Parameters
    ----------
    reassociate : bool, default=False
        Let sums be regrouped so that they use vector registers. The result stays the same from call to call on
        one machine; NaN and infinity keep their meaning.
    """
    fastmath = {"reassoc", "contract", "nsz"} if reassociate else {"contract"}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        try:
            fast: Callable[P, R] = numba.njit(nogil=True, fastmath=fastmath, cache=True)(function)
        except RuntimeError:
            # A container may leave no directory to write the cache to; the code is then compiled in each process.
            fast = numba.njit(nogil=True, fastmath=fastmath)(function)
        return fast

    return decorate


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to.

    numba compiles a function anew for read-only arrays, which is what Arrow and Ray hand out; passing every input
    as one spares the second compilation.
    """
    view = array.view()
    view.flags.writeable = False
    return view
