"""What on a host can run an engine, and which models lie there: found by files alone, nothing is imported or run.

Environments are told by pyvenv.cfg or conda-meta, engines by their *.dist-info (the core metadata specification and
"recording installed projects" of PyPA), Hugging Face caches by their layout (models--ORG--NAME/snapshots/REVISION).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

import msgspec

from tokpit.domain.text import sanitize
from tokpit.probes.searched import Searched, either, find_names, metadata_words

ROOTS = (
    *("$HOME", "/opt", "/srv", "/data", "/workspace", "/venv", "/mnt", "/scratch", "/usr/local", "/root", "/app"),
    *("/home/*/venv*", "/home/*/miniconda3/envs", "/home/*/.local/share/uv/tools"),
)
BUDGET_S = 8


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """An installed distribution. `installed_at`: UTC seconds, by the age of its metadata folder."""

    name: str
    version: str
    installed_at: float | None = None
    source: str = ""
    """Where it was built from, if not from an index: a folder (`editable`) or repository with its commit."""

    @property
    def development(self) -> bool:
        """Whether it is no released build."""
        return bool(self.source) or bool(re.search(r"dev|\+g[0-9a-f]{6,}|rc\d", self.version))


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """A Python environment that holds an engine. `kind`: `venv`, `conda`, `uv-tool`, `pipx`, `user`, `system`."""

    prefix: str
    kind: str
    python: str = ""
    """Version of its Python, as far as its files tell."""
    packages: tuple[Package, ...] = ()
    engines: dict[str, str]
    """Engine name to version."""

    def package(self, name: str) -> Package | None:
        """The distribution of that name."""
        return next((package for package in self.packages if package.name == name), None)


class Binary(msgspec.Struct, frozen=True):
    """An engine that was built, by its program."""

    path: str
    built_at: float | None = None


class Image(msgspec.Struct, frozen=True):
    """A container image that may hold an engine."""

    runtime: str
    name: str
    size: str = ""
    created: str = ""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model on the host. `kind`: `hub` (name in a cache), `folder`, `gguf`. `unfinished`: files still incomplete."""

    name: str
    path: str
    kind: str
    size_bytes: int | None = None
    unfinished: bool = False


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `cut`: the time was over before everything had been looked at."""

    environments: tuple[Environment, ...] = ()
    binaries: tuple[Binary, ...] = ()
    images: tuple[Image, ...] = ()
    models: tuple[Model, ...] = ()
    others: int = 0
    """Environments without an engine."""
    cut: bool = False


_SCRIPT = r"""
began=$(date +%%s)
over() { [ $(($(date +%%s) - began)) -ge %(budget)d ] && { cut=1; return 0; }; return 1; }
cut= tab=$(printf '\t')
limit=; command -v timeout >/dev/null 2>&1 && limit="timeout %(budget)d"
say() { printf '%%s' "$1"; shift; for w; do printf '\t%%s' "$w"; done; printf '\n'; }
age() { stat -c %%Y -- "$1" 2>/dev/null || stat -f %%m -- "$1" 2>/dev/null; }
roots=
for r in %(roots)s; do [ -d "$r" ] && roots="$roots $r"; done
places() {
  $limit find $roots -maxdepth 5 \( -name node_modules -o -name .git -o -name site-packages -o -name 'models--*' \
    -o -name .cache -o -name proc -o -name sys -o -name pkgs \) -prune \
    -o \( -name pyvenv.cfg -o -name conda-meta %(find)s \) -print 2>/dev/null
  for d in "$HOME"/.local/share/uv/tools/* "$HOME"/.local/share/pipx/venvs/* "$HOME"/.local/pipx/venvs/*; do
    [ -f "$d/pyvenv.cfg" ] && echo "$d/pyvenv.cfg"
  done
  [ -f "$HOME/.conda/environments.txt" ] && sed 's,$,/conda-meta,' "$HOME/.conda/environments.txt"
  for n in %(binaries)s; do p=$(command -v "$n") && echo "$p"; done
  for p in "$HOME"/.pyenv/versions/* /usr /usr/local; do [ -d "$p/lib" ] && echo "$p/base"; done
  echo "$HOME/.local/base"
}
seen="$tab"
places | while IFS= read -r f; do
  over && { say cut; break; }
  case " %(binaries)s " in *" ${f##*/} "*) [ -x "$f" ] && say bin "$f" "$(age "$f")"; continue ;; esac
  p=${f%%/*}
  case $seen in *"$tab$p$tab"*) continue ;; esac
  seen="$seen$p$tab"
  hit= out=
  for s in "$p"/lib*/python3*/site-packages "$p"/lib/python3*/dist-packages; do
    [ -d "$s" ] || continue
    for d in %(metadata)s; do
      [ -d "$d" ] && hit=1
    done
    [ -n "$hit" ] || continue
    v=${s##*/python}; v=${v%%%%/*}
    c=$(sed -n 's/^version\(_info\)\{0,1\} *= *//p' "$p/pyvenv.cfg" 2>/dev/null | head -n 1)
    say env "$p" "${f##*/}" "${c:-$v}"
    for d in %(metadata)s "$s"/torch-*.dist-info "$s"/transformers-*.dist-info %(companions)s \
      "$s"/triton-*.dist-info "$s"/nvidia_cuda_runtime*-*.dist-info; do
      [ -f "$d/METADATA" ] || continue
      n=$(sed -n '/^Name:/{s/^Name: *//p;q;}' "$d/METADATA")
      v=$(sed -n '/^Version:/{s/^Version: *//p;q;}' "$d/METADATA")
      say dist "$n" "$v" "$(age "$d")" "$(head -c 2000 "$d/direct_url.json" 2>/dev/null | tr '\n\t' '  ')"
    done
    break
  done
  [ -n "$hit" ] || case $f in */base) ;; *) say other "$p" ;; esac
done
for tool in docker podman; do
  command -v $tool >/dev/null 2>&1 || continue
  ${limit:+timeout 5} $tool images --format '{{.Repository}}:{{.Tag}}\t{{.Size}}\t{{.CreatedAt}}' 2>/dev/null |
    grep -iE '%(images)s' | while IFS= read -r l; do printf 'image\t%%s\t%%s\n' "$tool" "$l"; done
done
sum() { ls -lnL "$1" 2>/dev/null | awk '/\.(safetensors|bin|gguf|pth?)$/ { n += $5 } END { printf "%%.0f", n }'; }
hubs="${HF_HUB_CACHE:-}$tab${HF_HOME:+$HF_HOME/hub}$tab$HOME/.cache/huggingface/hub"
old=$IFS; IFS=$tab
for hub in $hubs; do
  IFS=$old
  [ -d "$hub" ] || continue
  for m in "$hub"/models--*; do
    over && { say cut; break; }
    [ -d "$m/snapshots" ] || continue
    last=; for s in "$m"/snapshots/*; do [ -d "$s" ] && last=$s; done
    [ -n "$last" ] || continue
    part=; for b in "$m"/blobs/*.incomplete; do [ -e "$b" ] && part=1; done
    n=${m##*/models--}
    say model hub "$(printf '%%s' "$n" | sed 's,--,/,g')" "$last" "$(sum "$last")" "$part"
  done
done
IFS=$old
for d in %(models)s; do
  [ -d "$d" ] || continue
  over && { say cut; break; }
  $limit find "$d" -maxdepth 3 \( -name 'models--*' -o -name .git \) -prune -o \
    \( -name config.json -o -name '*.gguf' \) -print 2>/dev/null
done | sort -u | while IFS= read -r f; do
  over && { say cut; break; }
  case $f in
    *.gguf) say model gguf "${f##*/}" "$f" "$(wc -c <"$f" | tr -d ' ')" "" ;;
    *) n=$(sum "${f%%/*}"); [ "${n:-0}" != 0 ] && say model folder "$(basename "${f%%/*}")" "${f%%/*}" "$n" "" ;;
  esac
done
say end
"""
MODEL_FOLDERS = (
    *("$HOME/models", "/models", "/data", "/mnt/models", "/srv/models", "/opt/models", "/workspace/models"),
    *("/mnt/*/models", "$HOME/.cache/modelscope/hub", "/scratch/models"),
)


def environments_script(
    searched: Searched,
    *,
    roots: Sequence[str] | None = None,
    extra: Sequence[str] = (),
    models: Sequence[str] | None = None,
    budget_s: int = BUDGET_S,
) -> str:
    """POSIX sh that prints what `parse_environments` reads, within about `budget_s` seconds.

    `roots` and `models`: folders to look in, instead of the usual ones; `extra`: folders to look in besides.
    """

    def words(given: Sequence[str] | None, usual: Sequence[str]) -> str:
        return shlex.join(given) if given is not None else " ".join(usual)

    return _SCRIPT % {
        "budget": budget_s,
        "roots": f"{words(roots, ROOTS)} {shlex.join(extra)}",
        "models": words(models, (*MODEL_FOLDERS, *searched.model_folders)),
        "find": find_names(searched.binaries),
        "binaries": " ".join(map(shlex.quote, searched.binaries)),
        "metadata": metadata_words(searched.metadata, "s"),
        "companions": metadata_words(searched.companions, "s"),
        "images": either(searched.images),
    }


def parse_environments(output: str, searched: Searched) -> Found:
    """What the script for `searched` found; lines of another shape are passed over."""
    environments: list[tuple[str, str, str, list[Package]]] = []
    binaries: dict[str, Binary] = {}
    images: list[Image] = []
    models: dict[str, Model] = {}
    others, cut, ended = 0, False, False
    for line in output.splitlines():
        word, *cells = (sanitize(cell.strip()) for cell in line.split("\t"))
        if word == "env" and len(cells) == 3:
            environments.append((cells[0], _kind(cells[0], cells[1]), cells[2], []))
        elif word == "dist" and len(cells) == 4 and environments and cells[0]:
            environments[-1][3].append(
                Package(
                    name=_normal(cells[0]), version=cells[1], installed_at=_time(cells[2]), source=_source(cells[3])
                )
            )
        elif word == "bin" and len(cells) == 2:
            binaries.setdefault(cells[0], Binary(cells[0], _time(cells[1])))
        elif word == "image" and len(cells) >= 3:
            images.append(Image(cells[0], cells[1], *cells[2:4]))
        elif word == "model" and len(cells) == 5:
            size = int(cells[3]) if cells[3].isdecimal() else None
            model = Model(kind=cells[0], name=cells[1], path=cells[2], size_bytes=size, unfinished=bool(cells[4]))
            models.setdefault(model.path, model)
        elif word == "other":
            others += 1
        elif word == "cut":
            cut = True
        elif word == "end":
            ended = True
    return Found(
        environments=tuple(
            Environment(
                prefix=prefix,
                kind=kind,
                python=python,
                packages=tuple(packages),
                engines={
                    name: package.version
                    for package in packages
                    if (name := searched.engine_of(package.name)) is not None
                },
            )
            for prefix, kind, python, packages in environments
        ),
        binaries=tuple(binaries.values()),
        images=tuple(images),
        models=tuple(models.values()),
        others=others,
        cut=cut or not ended,
    )


def _kind(prefix: str, told_by: str) -> str:
    if told_by == "conda-meta":
        return "conda"
    if "/uv/tools/" in prefix:
        return "uv-tool"
    if re.search(r"/pipx/venvs/", prefix):
        return "pipx"
    if told_by == "pyvenv.cfg":
        return "venv"
    return "user" if prefix.endswith("/.local") else "system"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _time(cell: str) -> float | None:
    return float(cell) if cell.isdecimal() else None


def _source(cell: str) -> str:
    """A short form of direct_url.json (PEP 610)."""
    try:
        page = json.loads(cell) if cell else None
    except ValueError:
        return ""
    if not isinstance(page, dict):
        return ""
    url = str(page.get("url") or "").removeprefix("file://")
    vcs, folder = page.get("vcs_info"), page.get("dir_info")
    if isinstance(vcs, dict):
        return f"{url}@{str(vcs.get('commit_id') or '')[:12]}"
    if isinstance(folder, dict):
        return f"{url} (editable)" if folder.get("editable") else url
    return "" if url.startswith(("http://", "https://")) else url
