"""Writes docs/keys.md from the console's action table: `python tools/make_keys.py`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
PAGE = ROOT / "docs" / "keys.md"
HEAD = """# Keys

Made from the action table by `python tools/make_keys.py`; do not edit it by hand.

Each key can be changed in `config.toml`, by the action's name (on every screen that has it), by screen and name (on
that screen alone) or by the command's id. Keys are written like `ctrl+x`, `f5`, `x`, `?` or
`slash`.

```toml
[keys]
"stop_server" = "ctrl+x"
"cockpit.history" = "f6"
"sweep.start" = "f5"
```

An entry that cannot be followed (no such action, no such key, a key that another action of the screen has, that moves
in lists or that no terminal sends) is said when the console opens, and the usual key stays.

Keys act in the order in which they are typed, also ahead of the screen: `/` and a word, `s` and a level, `esc` and a
number may be typed as fast as one can.

In the log, the tree and every list: `↑` `↓` line by line, `page up` `page down`, `home`, `end`; the wheel scrolls, a
click chooses, a second one opens, and a click on a key in the bottom line does what the key does. A click on a chart
reads everything at that moment, one on a column's name orders by it.
"""


def render() -> str:
    """The page as it should be."""
    from tokpit.ui.actions import SCREENS, actions_for
    from tokpit.ui.keymap import COMMANDS

    commands = {name: command for command, name in COMMANDS.items()}
    parts = [HEAD]
    for screen in SCREENS:
        parts.append(f"\n## {screen}\n\n| key | action | what it does | command |\n| --- | --- | --- | --- |\n")
        for action in actions_for(screen):
            command = f"`{commands[action.name]}`" if action.name in commands else ""
            parts.append(f"| `{action.key_text}` | `{action.name}` | {action.help} | {command} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
