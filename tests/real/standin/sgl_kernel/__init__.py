"""Stands in for SGLang's kernel package, which has no CPU build on the index.

Every name imports, at any depth. `shapes` has what the tiny models of the real tier need; calling anything else raises
NotImplementedError that says which kernel was wanted. Use it with `--attention-backend intel_amx`. The scheduler, the
log, the metrics and HTTP are SGLang's own.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import torch

from sgl_kernel.shapes import OPERATORS

__version__ = "0.4.10"
__path__: list[str] = []


class _Kernel:
    """A kernel that is not here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(f"{self._name} has no CPU stand-in")

    def __getattr__(self, name: str) -> Any:
        return _kernel(f"{self._name}.{name}", name)


def _kernel(path: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return OPERATORS.get(name) or _Kernel(path)


def __getattr__(name: str) -> Any:
    return _kernel(f"sgl_kernel.{name}", name)


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every submodule of this package importable, with the same contents."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: _kernel(f"{spec.name}.{name}", name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.insert(0, _Submodules())
for _name, _operator in OPERATORS.items():
    setattr(torch.ops.sgl_kernel, _name, _operator)
torch.cuda.synchronize = lambda _device=None: None  # a model with a draft head calls it on every platform
