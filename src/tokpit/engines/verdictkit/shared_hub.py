"""Failures around the model itself: path, hub, gate, files, architecture, tokenizer, quantisation, data type."""

from __future__ import annotations

from tokpit.domain.verdict import Verdict
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, retell, sig

_PATH = (
    "Check the path as the launch user and inside the container (`test -f PATH/config.json`); look at its "
    "neighbours for a typo."
)
_NET = (
    "Check network and proxy of the host, or download the model first and give its folder (HF_HUB_OFFLINE=1 then "
    "helps)."
)


def path_or_name(verdict: Verdict, case: Case) -> Verdict:
    """A path that does not exist is read as a hub name; the text then misleads."""
    name = str(verdict.figures.get("path", ""))
    if name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name:
        return retell(
            verdict,
            code="MODEL_PATH_MISSING",
            sentence="The model directory {path} does not exist on this host, as the launch user or container sees "
            "it; the name was then tried on the hub.",
            next_action=_PATH,
        )
    return retell(
        verdict,
        code="MODEL_NOT_FOUND",
        sentence="{path} is neither a folder here nor a model of the hub.",
        next_action="Check the spelling of the name, and that the token may see it.",
    )


MODEL: tuple[Signature, ...] = (
    sig(
        "MODEL_PATH_MISSING",
        r"Repo id must (?:be in the form|use alphanumeric)[^\n]*?: '(?P<path>[^'\n]+)'",
        "",
        phase="args",
        refine=path_or_name,
    ),
    sig(
        "MODEL_PATH_MISSING",
        r"Incorrect path_or_model_id: '(?P<path>[^']+)'|Invalid repository ID or local directory specified: "
        r"'(?P<path2>[^']+)'|(?P<path3>\S+) is not a local folder and is not a valid model identifier",
        "",
        phase="args",
        refine=path_or_name,
    ),
    sig(
        "MODEL_PATH_MISSING",
        r"No such file or directory: '?(?P<path>/[^'\n]*/(?:config|params|model\.safetensors\.index|"
        r"tokenizer\w*)\.json)'?",
        "The model file {path} does not exist.",
        _PATH,
        phase="args",
    ),
    sig(
        "HF_GATED",
        r"GatedRepoError|gated repo|Access to model (?P<model>\S+) is restricted|awaiting a review from the repo "
        r"authors",
        "The model is gated: this account has no access (yet).",
        "Accept the model's terms on the hub, and give the launch a token of that account (HF_TOKEN).",
        phase="args",
    ),
    sig(
        "HF_AUTH",
        r"Invalid (?:user token|credentials in Authorization header|username or password)|401 Client Error|403 "
        r"Forbidden|LocalTokenNotFoundError|Token is required",
        "The hub refused the token.",
        "Give the launch a valid HF_TOKEN (environments of services do not read your shell's files).",
        phase="args",
        rank=Rank.VAGUE,
    ),
    sig(
        "HF_RATE_LIMIT",
        r"429 Client Error|Too Many Requests",
        "The hub limits the rate of requests.",
        "Wait, give a token, or use a local folder.",
        phase="args",
    ),
    sig(
        "MODEL_NOT_FOUND",
        r"RepositoryNotFoundError|404 Client Error.*?(?:models|resolve)/?|RevisionNotFoundError|EntryNotFoundError",
        "The hub has no such model, revision or file (or the token may not see it).",
        "Check the spelling, the revision and the token.",
        phase="args",
    ),
    sig(
        "HF_UNREACHABLE",
        r"couldn't connect to 'https?://[^']*'|LocalEntryNotFoundError|OfflineModeIsEnabled|Max retries exceeded "
        r"with url|offline mode is enabled|ReadTimeout: .*huggingface|(?:ConnectError|ConnectionError|"
        r"ConnectTimeout)[^\n]*(?:huggingface|hf-mirror|modelscope)",
        "The hub cannot be reached and the model is not in the local cache.",
        _NET,
        phase="args",
    ),
    sig(
        "TRUST_REMOTE_CODE",
        r"contains custom code|execute the (?:configuration|modeling|tokenizer) file|option `?trust_remote_code=True",
        "The model brings its own code, and the launch does not allow it.",
        "If you trust the model's authors, start with --trust-remote-code.",
        phase="args",
    ),
    sig(
        "WEIGHTS_CORRUPT",
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader|UnpicklingError|failed (?:reading|"
        r"finding) (?:zip archive|central directory)|PytorchStreamReader|file bounds, model is corrupted|invalid "
        r"magic|git-lfs",
        "A weight file is broken or incomplete (an interrupted download, or a Git LFS pointer).",
        "Compare sizes and checksums of the files with the source, and fetch the broken one again.",
        phase="load",
    ),
    sig(
        "MODEL_INCOMPLETE",
        r"does not appear to have (?:a file named|files named) (?P<file>[\w-]+\.\w+)|Cannot find any model weights "
        r"with|No supported config format found|no file named (?P<file2>[\w.]+)|model_type` key in its "
        r"config\.json|config\.json is not a valid JSON",
        "The model folder is incomplete: {file}.",
        "Fetch the missing files; check that the folder is the model's own and not its parent.",
        phase="load",
    ),
    sig(
        "MODEL_UNSUPPORTED",
        r"model type `?(?P<arch>[\w-]+)`? but Transformers does not recognize|Model architectures? "
        r"\[(?P<arch2>[^\]]*)\] (?:are|is) not supported|[Uu]nsupported architectures?: ?(?P<arch3>\S+)|unknown "
        r"model architecture: '(?P<arch4>[^']+)'|has no (?:vLLM|SGLang) implementation|failed to be inspected",
        "This build does not know the model's architecture.",
        "Upgrade the engine (and transformers), or use a build that lists this architecture.",
        phase="args",
        refine=lambda v, _c: retell(
            v,
            {"arch": next((str(v.figures[k]) for k in ("arch", "arch2", "arch3", "arch4") if k in v.figures), "?")},
            sentence="This build does not know the model's architecture ({arch}).",
        ),
    ),
    sig(
        "TOKENIZER",
        r"[Cc]an't load tokenizer|Tokenizer class (?P<cls>\w+) does not exist|instantiate the backend tokenizer|No "
        r"such file or directory: '[^']*tokenizer\.model'|untagged enum ModelWrapper|Converting from (?:Tiktoken|"
        r"SentencePiece)",
        "The tokenizer cannot be loaded.",
        "Check that the tokenizer's files are in the model folder and that transformers and tokenizers fit the model.",
        phase="load",
    ),
    sig(
        "QUANT_MISMATCH",
        r"[Qq]uantization method (?:specified in the model config )?\(?(?P<config>\w+)\)? does not match "
        r".*?\((?P<given>\w+)\)",
        "The checkpoint is quantised as {config}, and the launch asks for {given}.",
        "Remove the quantization setting: the checkpoint says it itself.",
        phase="args",
    ),
    sig(
        "QUANT_UNSUPPORTED",
        r"(?:Unknown|Invalid|Unsupported) quantization(?: method| scheme| type)?:? ?(?P<method>[\w'\"-]*)|[Cc]annot "
        r"find the config file for (?P<method2>\w+)|is not supported for quantization method (?P<method3>\w+)|"
        r"quant(?:ization)?_config.*?not supported|No compressed-tensors compatible scheme",
        "This build cannot use the model's quantisation.",
        "Choose a checkpoint in a format that this build lists, or the data type that it asks for.",
        phase="load",
    ),
    sig(
        "WEIGHTS_MISMATCH",
        r"^KeyError: '(?:\w+\.)*(?:layers|model|lm_head|experts|visual|mtp|embed_tokens)\.[\w.]+'|size mismatch for|"
        r"There is no module or parameter named|not initialized from (?:the )?checkpoint|Attempted to load weight "
        r"\(|shape mismatch.*?(?:weight|param)|loaded_weight\.shape",
        "The weights do not fit the model code: names or shapes differ.",
        "Use the engine version that the checkpoint asks for; check quantisation, tp and draft model.",
        phase="load",
        rank=Rank.VAGUE,
    ),
    sig(
        "CHAT_TEMPLATE",
        r"TemplateSyntaxError|chat template .*?(?:not found|does not exist|cannot be)",
        "The chat template cannot be read.",
        "Check the path or the Jinja syntax of the chat template.",
        phase="args",
    ),
)
