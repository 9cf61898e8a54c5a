"""Failures of the Python environment and of kernel builds at run time."""

from __future__ import annotations

from tokpit.domain.verdict import Verdict
from tokpit.engines import registry
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, retell, sig

_TOOLS = r"ninja|nvcc|gcc|g\+\+|cc|c\+\+|clang|cmake|make|hipcc|ptxas|cuobjdump|git"
_INSTALL = (
    "Install it in the environment that serves, and put it on the PATH of the launch (`command -v {tool}` "
    "there, not in a login shell)."
)


def missing_module(verdict: Verdict, case: Case) -> Verdict:
    """The engine itself missing is another matter than one of its packages."""
    module = str(verdict.figures.get("module", ""))
    if any(module.split(".", maxsplit=1)[0] in engine.packages for engine in registry.engines()):
        return retell(
            verdict,
            code="ENGINE_NOT_INSTALLED",
            sentence="The Python of this launch has no module {module}: the engine is not installed there.",
            next_action="Use the interpreter of the environment that holds the engine.",
        )
    return verdict


PYTHON: tuple[Signature, ...] = (
    sig(
        "BUILD_TOOL_MISSING",
        rf"\[Errno 2\] No such file or directory: '(?:[^']*/)?(?P<tool>{_TOOLS})'",
        "The tool {tool} is missing: kernels cannot be built at the start.",
        _INSTALL,
    ),
    sig(
        "ENV_MALFORMED",
        r"(?:^|\n)\S*sh: (?:line )?\d*:? ?(?P<value>:+/\S+): (?:not found|No such file)",
        "A path in the environment begins with a colon: {value} (CUDA_HOME or the like).",
        "Set the variable to one plain path: `export CUDA_HOME=/usr/local/cuda`, not `$CUDA_HOME:...`.",
    ),
    sig(
        "BUILD_TOOL_MISSING",
        rf"(?:^|\n)\S*sh: (?:line )?\d*:? ?(?:\S*/)?(?P<tool>{_TOOLS}): (?:command )?(?:not found|No such file)",
        "The tool {tool} is missing: kernels cannot be built at the start.",
        _INSTALL,
    ),
    sig(
        "BUILD_TOOL_MISSING",
        r"(?P<tool>[Nn]inja) is required to load C\+\+ extensions|Could not find (?P<tool2>nvcc)|Failed to find "
        r"(?P<tool3>C compiler)|"
        r"(?P<tool4>CUDA_HOME) environment variable is not set|(?P<tool5>Python\.h|cuda\w*\.h|cublas\w*\.h|"
        r"curand\w*\.h): No such file|Unable to find (?P<tool6>nvcc|gcc|ptxas)|No CUDA toolkit found",
        "A build tool is missing: kernels cannot be built at the start.",
        "Install compiler, ninja and the CUDA toolkit in the environment that serves, and put them on the PATH of "
        "the launch.",
    ),
    sig(
        "DISK_FULL",
        r"No space left on device(?!.*/dev/shm)",
        "",
        within=r"ninja|nvcc|torch_extensions|triton",
        next_action="",
        refine=lambda v, _c: retell(
            v,
            sentence="The disk is full: a kernel build could not be written.",
            next_action="Free space in the cache folder (`df -h ~/.cache /tmp`).",
        ),
    ),
    sig(
        "BUILD_FAILED",
        r"ninja: build stopped|Error building extension|Command '\['ninja'.*returned non-zero|nvcc (?:fatal|error)|"
        r"Error compiling objects for extension",
        "A kernel build at the start failed.",
        "Read the compiler's first error above; CUDA toolkit, compiler and torch must fit together.",
        rank=Rank.VAGUE,
    ),
    sig(
        "ABI_MISMATCH",
        r"undefined symbol: (?P<symbol>\S+)",
        "A compiled package does not fit the installed torch or CUDA: undefined symbol {symbol}.",
        "Reinstall the package for this torch version, or recreate the environment from the engine's own pins.",
    ),
    sig(
        "ABI_MISMATCH",
        r"version `?(?P<wanted>(?:GLIBC(?:XX)?|CXXABI)_[\d.]+)'? not found",
        "A compiled package needs {wanted}, which this system lacks.",
        "Use an image or system with a newer C library, or a wheel built for this one.",
    ),
    sig(
        "ABI_MISMATCH",
        r"numpy\.dtype size changed|compiled using NumPy 1\.x cannot be run|compiled (?:with|against) (?:a different "
        r")?(?:CUDA|PyTorch|torch|Python)\b.{0,80}|binary incompatibility|operator torchvision::nms does not exist|"
        r"Could not load any \w+ library|Failed to load the backend extension",
        "Compiled packages of the environment do not fit each other.",
        "Recreate the environment from the engine's own pins.",
    ),
    sig(
        "LIBRARY_MISSING",
        r"(?P<library>lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "The shared library {library} was not found.",
        "Install the package that holds it, or add its folder to LD_LIBRARY_PATH of the launch.",
    ),
    sig(
        "MODULE_MISSING",
        r"No module named '?(?P<module>[\w.]+)'?",
        "The Python module {module} is missing in the environment of this launch.",
        "Install it there, or use the interpreter of the right environment.",
        refine=missing_module,
    ),
    sig(
        "PACKAGE_MISMATCH",
        r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'",
        "{module} has no {name}: package versions do not fit each other.",
        "Install the versions that the engine pins (`pip check` lists conflicts).",
    ),
    sig(
        "PACKAGE_MISMATCH",
        r"(?P<package>[\w.-]+)\s*(?P<wanted>[<>=!~]=?[\d.,<>=!]+\S*) is required for a normal functioning|requires "
        r"(?P<package2>[\w-]+) ?(?P<wanted2>[<>=]=[\d.]+)[^\n]*(?:installed|found|you have)|"
        r"PackageNotFoundError: (?:No package metadata was found for )?(?P<package3>[\w-]+)|DistributionNotFound: |"
        r"VersionConflict: |module '(?P<package4>[\w.]+)' has no attribute|is already used by a Transformers "
        r"config|install it using `pip install|Please install (?P<package5>[\w-]+)",
        "Package versions of the environment do not fit each other.",
        "Install the versions that the engine pins (`pip check` lists conflicts).",
        rank=Rank.VAGUE,
    ),
    sig(
        "COMMAND_NOT_FOUND",
        r"(?:^|\n)\S*sh: (?:line )?\d*:? ?(?P<command>\S+): "
        r"(?:(?:command )?not found|No such file)|(?:^|\n)(?:env|nohup|"
        r"exec)\b.*?[‘'`\"]?(?P<command2>[\w./-]+)[’'\"]?: No such file",
        "The command {command} was not found.",
        "Give the full path, as the launch user sees it.",
        rank=Rank.VAGUE,
        phase="args",
    ),
    sig(
        "COMMAND_NOT_FOUND",
        r"can't open file '?(?P<command>[^']+?)'?: \[Errno 2\]",
        "The program {command} does not exist.",
        "Correct the path in the profile.",
        phase="args",
    ),
)
