"""Secrets out of structures: what is stored or exported never holds a key, a token or a password."""

from __future__ import annotations

import re
from typing import Any

from tokpit.domain.text import mask_secrets

_FLAG = re.compile(r"--?(?:[a-z]+[-_])*(?:api[-_]?key|token|password|secret)", re.IGNORECASE)
_NAME = re.compile(r"(?:^|_)(?:api_?keys?|token|secret|password|passwd|authorization)$", re.IGNORECASE)


def masked(value: Any) -> Any:
    """A copy of plain data (dicts, lists, text, numbers) with secrets as `***`.

    Masked are the values of keys that name a secret, the word after a flag that takes one, and secrets within text.
    """
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {
            key: "***" if isinstance(item, str) and item and _NAME.search(str(key).replace("-", "_")) else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        words: list[Any] = []
        hide = False
        for item in value:
            if hide and isinstance(item, str) and not item.startswith("--"):
                words.append("***")
                continue  # a flag may take several keys
            hide = isinstance(item, str) and _FLAG.fullmatch(item) is not None
            words.append(masked(item))
        return words
    return value
