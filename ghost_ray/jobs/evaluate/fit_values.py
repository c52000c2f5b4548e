"""A fit as arrays and a JSON description of how they belong together, converted both ways bit for bit.

The description names the classes of objects. Only classes that the caller passes are instantiated: nothing is
unpickled, and no file decides what is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ghost_ray.files.tensors import can_hold

Arrays = dict[str, np.ndarray]
Classes = Sequence[type]
_PLAIN = {"none": type(None), "bool": bool, "int": int, "str": str}  # JSON itself holds them exactly


def describe(value: Any, classes: Classes, arrays: Arrays) -> list[Any]:
    """Describe a value and put its arrays into ``arrays``; ValueError if it is of another kind.

    Allowed are numpy arrays and numbers, Python numbers, strings, None, lists, tuples and dictionaries of all these,
    and objects of ``classes``, which have an attribute for each parameter of their constructor.
    """
    kind = type(value)
    plain = next((word for word, each in _PLAIN.items() if kind is each), None)
    if plain is not None:
        return [plain, value]
    if kind is float:
        return ["float", value.hex()]
    if kind is np.ndarray:
        return _describe_array(value, arrays)
    if isinstance(value, np.generic):
        return ["scalar", *_describe_array(np.asarray(value), arrays)]
    if kind in (list, tuple):
        return [kind.__name__, *(describe(item, classes, arrays) for item in value)]
    if kind is dict:
        return ["dict", *([describe(part, classes, arrays) for part in item] for item in value.items())]
    if kind in classes:
        parts = {name: describe(getattr(value, name), classes, arrays) for name in _parameters(kind)}
        return ["object", kind.__name__, parts]
    raise ValueError(f"a {kind.__name__} cannot be kept")


def _describe_array(array: np.ndarray, arrays: Arrays) -> list[Any]:
    # The memory layout of an array affects the rounding of its products, so it is kept as well.
    order = "C" if array.flags.c_contiguous else "F"
    lying = array if order == "C" else array.T
    if not (lying.flags.c_contiguous and can_hold(array)):
        raise ValueError(f"an array of {array.dtype} with strides {array.strides} cannot be kept")
    name = str(len(arrays))
    arrays[name] = lying
    return ["array", name, order]


def rebuild(description: Any, classes: Classes, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that was described; ValueError if the description is invalid or names other classes."""
    match description:
        case ["float", str(text)]:
            return float.fromhex(text)
        case ["array", str(name), "C" | "F" as order] if name in arrays:
            copy = np.array(arrays[name], order="C")
            return copy if order == "C" else copy.T
        case ["scalar", *array]:
            return rebuild(array, classes, arrays)[()]
        case ["list" | "tuple" as word, *items]:
            made = [rebuild(item, classes, arrays) for item in items]
            return made if word == "list" else tuple(made)
        case ["dict", *pairs] if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return {rebuild(key, classes, arrays): rebuild(value, classes, arrays) for key, value in pairs}
        case ["object", str(name), dict(parts)]:
            kind = _class_named(name, classes)
            if list(parts) != _parameters(kind):
                raise ValueError(f"a {name} has other parts now")
            return kind(**{part: rebuild(value, classes, arrays) for part, value in parts.items()})
        case [str(word), value] if word in _PLAIN and type(value) is _PLAIN[word]:
            return value
    raise ValueError("is not the description of a fit")


def _class_named(name: str, classes: Classes) -> Callable[..., Any]:
    found = next((kind for kind in classes if kind.__name__ == name), None)
    if found is None:
        raise ValueError(f"a {name} is not part of this method's fit")
    return found


def _parameters(kind: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(kind).parameters)
