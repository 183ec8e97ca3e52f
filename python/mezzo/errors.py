"""The library's errors as Python's."""
import re
from typing import Any, Callable

import torch
from torch import Tensor, is_tensor

# What torch says of an argument of another type, and the form of the library's texts.
_OTHER_TYPE = re.compile(r"Expected a value of type|is missing value for argument")
_OWN_TEXT = re.compile(r"[a-z]\w*: |[A-Z]\w*: expected ")


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), with the library's errors as ValueError, and TypeError for an argument
    of a type that the operator does not take. Others, such as lack of memory, pass through."""
    try:
        return function(*arguments)
    except NotImplementedError as error:
        tensors = ", ".join(f"{describe(x)} on {x.device}" for x in arguments
                            if is_tensor(x) and x.dtype != torch.uint8)  # which is a structure
        raise ValueError(f"{function.__name__}: expected strided tensors on one CPU or CUDA "
                         f"device, got {tensors}") from error
    except RuntimeError as error:
        text = str(error)
        if _OTHER_TYPE.search(text):
            raise TypeError(text.splitlines()[0]) from None
        if type(error) is RuntimeError and _OWN_TEXT.match(text):
            raise ValueError(text) from None
        raise


def check(condition: bool, text: str, *values: Any) -> None:
    """Raises ValueError with the formatted text unless the condition holds."""
    if not condition:
        raise ValueError(text.format(*map(describe, values)))


def check_all(holds: Tensor, text: str, *values: Any) -> None:
    """check(holds.all()), which synchronises. A compiled function raises RuntimeError."""
    if torch.compiler.is_compiling():
        torch._assert_async(holds.all(), text.format(*map(describe, values)))
    else:
        check(bool(holds.all()), text, *values)


def check_tensors(owner: str, **values: Any) -> None:
    """Raises TypeError unless all values are tensors."""
    for name, value in values.items():
        if not is_tensor(value):
            raise TypeError(f"{owner}: expected {name} to be a tensor, got {type(value).__name__}")


def describe(value: Any) -> Any:
    """A tensor by its dtype and shape, such as `float32 [4, 3]`; anything else as it is."""
    return (f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if is_tensor(value)
            else value)
