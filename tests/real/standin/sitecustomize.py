"""Loaded by every Python of an SGLang without a GPU, before anything else."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import types
from typing import Any

# The published torchvision is a CUDA build whose operators cannot load.
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))


class Replacing(importlib.abc.MetaPathFinder):
    """Lets a module of SGLang load as it is, then puts the names of `sgl_kernel.shapes.REPLACED` in it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("sglang."):
            return None
        from sgl_kernel.shapes import REPLACED

        names = REPLACED.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if names is not None else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            vars(module).update(names)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Replacing())
