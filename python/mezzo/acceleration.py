"""What `mezzo.pyg.accelerate` and `mezzo.dgl.accelerate` share."""
import logging
from typing import Callable, NamedTuple

from torch import nn

logger = logging.getLogger("mezzo")


class Report(NamedTuple):
    """The modules that run Mezzo's operators now, and the convolutions left, with the reasons."""
    replaced: list[str]
    left: dict[str, str]

    def __str__(self) -> str:
        count = len(self.replaced)
        return "\n".join([
            f"mezzo: accelerated {count} of {count + len(self.left)} convolutions",
            *(f"  {name}" for name in self.replaced),
            *(f"  left {name}: {why}" for name, why in self.left.items())])


def swap(model: nn.Module, is_convolution: Callable[[nn.Module], bool],
         replacements: dict[type, type], reason_to_leave: Callable[[nn.Module], str | None],
         verbose: bool) -> Report:
    """Gives each convolution of the model that has a replacement the replacement's class. The
    object, its parameters, hooks and names stay: optimizers and state dicts go on working."""
    report = Report([], {})
    for name, module in model.named_modules():
        label = f"{name or 'model'} ({type(module).__name__})"
        if type(module) in replacements.values() or not is_convolution(module):
            continue
        reason = ("a subclass, which may compute something else"
                  if isinstance(module, tuple(replacements)) else "no counterpart")
        if type(module) in replacements:
            reason = reason_to_leave(module)
        if reason is None:
            module.__class__ = replacements[type(module)]
            report.replaced.append(label)
        else:
            report.left[label] = reason
    if verbose:
        print(report)
    return report
