"""For every Python of a CPU-only SGLang: the published torchvision is a CUDA build whose operators cannot load."""

import sys
import types

sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
