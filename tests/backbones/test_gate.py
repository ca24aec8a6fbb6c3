"""The one door to the Hugging Face libraries: offline, and quiet when Rust panics."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from smatter.backbones.gate import OFFLINE, StrangersError, strangers_errors, without_panic_messages
from smatter.errors import IncompatibleSource

SOURCE = Path(__file__).parents[2] / "src" / "smatter"
HUGGING_FACE = ("transformers", "tokenizers", "huggingface_hub", "kernels", "timm")


def imports(path: Path) -> set[str]:
    """Names of modules that a file imports, but for those that only type checkers see."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        waiting += ast.iter_child_nodes(node)
    return found


def test_the_hugging_face_libraries_are_imported_nowhere_else() -> None:
    for path in SOURCE.rglob("*.py"):
        others = {name for name in imports(path) if name.split(".")[0] in HUGGING_FACE}
        assert not others, f"{path} imports {others}: use smatter.backbones.gate.transformers"


def run(program: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in OFFLINE}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean | environment
    )
    return done.stdout


def test_importing_smatter_changes_nothing_and_a_network_puts_the_libraries_offline() -> None:
    program = """
import os, smatter
from smatter.backbones import network
before = sorted(name for name in os.environ if "OFFLINE" in name)
network.transformers()
from huggingface_hub import constants
print(before, constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY, os.environ["USE_HUB_KERNELS"])
"""
    assert run(program).split("\n")[0] == "[] True True NO"


COUNTING = """
import json, socket
n_tries = 0
def refuse(*_, **__):
    global n_tries
    n_tries += 1
    raise OSError("no network in this test")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
if EARLY:
    import transformers
from smatter.backbones.gate import transformers as library
from pathlib import Path
from smatter.backbones.network import Network
from smatter.backbones.texts import Tokenizer
from smatter.errors import IncompatibleSource
library("utils.logging").set_verbosity_error()
mapping = library("models.auto.configuration_auto").CONFIG_MAPPING
reaching = {
    "backbone": "someone/x", "use_timm_backbone": True, "use_pretrained_backbone": True, "backbone_kwargs": {"a": 1},
    "attn_implementation": "kernels-community/x", "_attn_implementation": "someone/x", "experts_implementation": "x/y",
    "auto_map": {"AutoModel": "someone/x--evil.Model"}, "_name_or_path": "someone/x",
    "quantization_config": {"quant_method": "gptq"}, "kernel_config": {"a": "someone/x"},
}
small = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9,
    "image_size": 8, "patch_size": 4,
}
n_built = n_refused = 0
for model_type in TYPES:
    try:
        Network({"model_type": model_type, **small, **reaching})
        n_built += 1
    except IncompatibleSource as error:
        assert "\\n" not in str(error)
        n_refused += 1
for model_type in ("mistral", "llama", "bert"):
    Tokenizer.of({"model_type": model_type, "vocab_size": 9}, Path(FOLDER)).tokens(["red"])
print(json.dumps([n_tries, n_built, n_refused]))
"""


@pytest.mark.parametrize("early", [False, True], ids=["smatter alone", "transformers imported before"])
def test_no_setting_of_a_config_or_tokenizer_reaches_for_the_network(early: bool, tmp_path: Path) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    def has_backbone(model_type: str) -> bool:
        fields = getattr(CONFIG_MAPPING[model_type], "__dataclass_fields__", {})
        return any("backbone" in name for name in fields)

    with_backbone = sorted(filter(has_backbone, CONFIG_MAPPING))
    assert len(with_backbone) > 10
    types = [*with_backbone, "bert", "vit", "mistral", "qwen2"]
    words = Tokenizer(WordLevel({"[UNK]": 0, "red": 1}, unk_token="[UNK]"))
    words.save(str(tmp_path / "tokenizer.json"))
    reaching = {"name_or_path": "someone/x", "auto_map": {"AutoTokenizer": ["someone/x--evil.A", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**reaching, "fix_mistral_regex": True}))
    told = run(f"EARLY = {early}; TYPES = {types!r}; FOLDER = {str(tmp_path)!r}\n{COUNTING}")
    assert json.loads(told.split("\n")[-2]) == [0, 4, len(with_backbone)]


def test_what_libraries_raise_becomes_one_line_and_interruptions_pass() -> None:
    with pytest.raises(StrangersError, match=r"^two lines$"), strangers_errors():
        raise ValueError("two\n   lines")
    with pytest.raises(KeyboardInterrupt), strangers_errors():
        raise KeyboardInterrupt
    with pytest.raises(IncompatibleSource), strangers_errors():
        raise IncompatibleSource("ours")


def test_a_panic_prints_nothing_and_everything_else_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    class PanicException(BaseException):
        """Called as pyo3 calls it."""

    with pytest.raises(StrangersError, match="index out of bounds"), strangers_errors(), without_panic_messages():
        os.write(2, b"thread panicked\n")
        raise PanicException("index out of bounds")
    with without_panic_messages():
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"
