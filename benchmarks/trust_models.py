"""Hostile checkpoints: configs, tokenizers and preprocessors of strangers, on their way to a network that runs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trust_cases import CONTROL, ODD, Case, Words, load, mutations, save
from trust_world import World

BACKBONES = (
    "conditional_detr", "dab-detr", "deformable_detr", "depth_anything", "detr", "dpt", "d_fine", "grounding-dino",
    "mask2former", "maskformer", "omdet-turbo", "oneformer", "prompt_depth_anything", "rt_detr", "rt_detr_v2",
    "superglue", "table-transformer", "timm_backbone", "timm_wrapper", "tvp", "upernet", "vitmatte", "vitpose",
    "zoedepth",
)  # fmt: skip
"""Types whose configs may name another network, to be fetched."""

ABSURD: dict[str, dict[str, Any]] = {
    "labels": {"num_labels": 200_000_000},
    "label names": {"id2label": {str(number): f"c{number}" for number in range(50_000)}},
    "words": {"vocab_size": 50_000_000},
    "positions": {"max_position_embeddings": 50_000_000},
    "token types": {"type_vocab_size": 50_000_000},
    "layers": {"num_hidden_layers": 20_000},
    "more layers": {"num_hidden_layers": 10**9},
    "width": {"hidden_size": 1_000_000},
    "width and words": {"hidden_size": 100_000, "vocab_size": 1_000_000},
    "middle": {"intermediate_size": 400_000_000},
    "heads": {"num_attention_heads": 10**7},
    "no heads": {"num_attention_heads": 0},
    "chunks": {"chunk_size_feed_forward": 10**9},
    "negative words": {"vocab_size": -5},
    "padding": {"pad_token_id": 10**9},
}
IMAGE_ABSURD: dict[str, dict[str, Any]] = {
    "labels": {"num_labels": 200_000_000},
    "pixels": {"image_size": 1_000_000},
    "pixels and small patches": {"image_size": 4096, "patch_size": 1},
    "patches": {"patch_size": 0},
    "channels": {"num_channels": 10**8},
    "layers": {"num_hidden_layers": 20_000},
    "pair of sizes": {"image_size": [4096, 4096, 4096]},
    "encoder stride": {"encoder_stride": 10**6},
    "pooler": {"pooler_output_size": 10**9},
}
REACHING: dict[str, dict[str, Any]] = {
    "kernel": {"attn_implementation": "kernels-community/flash-attn"},
    "kernel within": {"_attn_implementation": "kernels-community/flash-attn"},
    "kernel by revision": {"_attn_implementation": "someone/kernel@main:flash"},
    "experts kernel": {"_experts_implementation": "kernels-community/moe"},
    "kernels": {"use_kernels": True, "kernel_config": {"kernel_mapping": {"RMSNorm": "someone/kernel:RMSNorm"}}},
    "code": {"auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}},
    "code elsewhere": {"auto_map": {"AutoModel": "someone/evil--evil.Model"}},
    "quantised": {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
    "quantised by gptq": {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    "adapters": {"_name_or_path": "someone/else", "peft": {"base_model_name_or_path": "someone/else"}},
    "name": {"_name_or_path": "someone/private-model"},
    "function": {"hidden_act": "__import__('os').system"},
    "function by place": {"hidden_act": "os.system"},
    "rope": {"rope_scaling": {"rope_type": "yarn", "factor": 1e300}},
    "parallel": {"base_model_tp_plan": {"*": "colwise"}, "tp_plan": "auto"},
    "dtype": {"torch_dtype": "float4_e2m1fn_x2", "dtype": "int8"},
    "problem": {"problem_type": "x", "num_labels": -1},
    "sub configs": {"text_config": {"model_type": "llama", "num_hidden_layers": 10**6}},
    "gradients": {"gradient_checkpointing": True, "return_dict": False, "output_hidden_states": True},
    "torchscript": {"torchscript": True, "use_cache": "yes", "is_decoder": True, "add_cross_attention": True},
}


def chain(world: World, evil: Path, examples: Path) -> list[Words]:
    """A stranger's checkpoint made the base of a new library, adapted with and exported."""
    library = world.home / "new"
    return [
        ["library", "init", library, evil, "--exclude", "classifier.*"],
        ["adapt", library, examples, "-o", world.home / "made.safetensors"],
        ["predict", world.home / "made.safetensors", world.inputs_txt if examples.is_file() else examples,
         "--library", library],
    ]  # fmt: skip


def joined(world: World, evil: Path) -> list[Words]:
    """A stranger's checkpoint added to a sound library, mixed and adapted with."""
    return [
        ["library", "add", world.texts, evil, "--name", "evil"],
        ["compose", world.texts, "--weights", "base=.5,evil=.5", "-o", world.out],
        world.adapt(),
    ]


def text_model(world: World, file: str, content: str | bytes) -> Path:
    """A sound checkpoint for texts with one file replaced."""
    path = world.candidate / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    return world.candidate


def config_cases(template: World) -> list[Case]:
    cases = []
    text = load(template.candidate / "config.json")
    picture = load(template.home / "picture-candidate" / "config.json")

    def of(config: Any, number: int, pictures: bool = False) -> Callable[[World], Sequence[Words]]:
        def lay_out(world: World) -> Sequence[Words]:
            folder = world.home / ("picture-candidate" if pictures else "candidate")
            save(folder / "config.json", config)
            evil_code = (
                "from pathlib import Path\nPath('code-was-run').touch()\nclass Config: pass\nclass Model: pass\n"
            )
            (folder / "evil.py").write_text(evil_code)
            if number % 4 == 3 and not pictures:
                return joined(world, folder)
            return chain(world, folder, world.examples if pictures else world.examples_csv)

        return lay_out

    for name, change in (ABSURD | REACHING).items():
        cases.append(Case("config", f"text, {name}", of(text | change, 0)))
        cases.append(Case("config", f"text, added, {name}", of(text | change, 3)))
    for name, change in (IMAGE_ABSURD | REACHING).items():
        cases.append(Case("config", f"picture, {name}", of(picture | change, 0, pictures=True)))
    for kind in BACKBONES:
        reach = {"backbone": "microsoft/resnet-50", "use_pretrained_backbone": True, "use_timm_backbone": False}
        for number, extra in enumerate(({}, {"use_timm_backbone": True, "backbone": "resnet50"})):
            config = picture | reach | extra | {"model_type": kind, "backbone_config": None}
            cases.append(Case("config", f"backbone of {kind}, {number}", of(config, 0, pictures=True)))
    for number, (name, config) in enumerate(mutations(text, 60, seed=1)):
        cases.append(Case("config", f"text: {name}", of(config, number)))
    for number, (name, config) in enumerate(mutations(picture, 40, seed=2)):
        cases.append(Case("config", f"picture: {name}", of(config, number, pictures=True)))
    return cases


def sound_tokenizer(template: World) -> dict[str, Any]:
    words = (template.candidate / "vocab.txt").read_text().split("\n")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": words[number], **special} for number in range(5)],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "[UNK]"},
    }  # fmt: skip


def _sequence(kind: str, parts: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: parts}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def tokenizers(sound: dict[str, Any]) -> dict[str, Any]:
    """Tokenizers that do harm, by what they do."""
    model, words = sound["model"], sound["model"]["vocab"]
    doubling = [_replace({"String": "a"}, "aa") for _ in range(30)]
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    return {
        "doubling": {"normalizer": _sequence("normalizers", doubling)},
        "doubling by pattern": {"normalizer": _sequence("normalizers", [_replace({"Regex": "."}, "$0$0aa")] * 24)},
        "prepending": {"normalizer": _sequence("normalizers", [{"type": "Prepend", "prepend": "x" * 10**6}] * 50)},
        "nested": {"normalizer": _nested(60)},
        "backtracking": {"pre_tokenizer": split | {"pattern": {"Regex": "(a+)+(b+)+$|(l|la|aw)*$"}}},
        "backtracking in a normaliser": {"normalizer": _replace({"Regex": "^(.?.?)*(x|y)$"}, "")},
        "wrong pattern": {"pre_tokenizer": split | {"pattern": {"Regex": "(("}}},
        "no unknown": {"model": {"type": "WordLevel", "vocab": {"zzz": 0}, "unk_token": "[UNK]"}, "added_tokens": []},
        "no unknown at all": {"model": {"type": "WordLevel", "vocab": {"zzz": 0}, "unk_token": ""}},
        "empty vocabulary": {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "[UNK]"}, "added_tokens": []},
        "numbers too large": {"model": model | {"vocab": {word: number * 10**6 for word, number in words.items()}}},
        "numbers at the limit": {"model": model | {"vocab": words | {"law0a": 2**32 - 1}}},
        "numbers beyond": {"model": model | {"vocab": words | {"law0a": 2**40}}},
        "negative numbers": {"model": model | {"vocab": words | {"law0a": -1}}},
        "many words": {"model": model | {"vocab": words | {f"w{n}": n + 100 for n in range(300_000)}}},
        "padded to a billion": {"padding": _padding(10**9)},
        "padded to much": {"padding": _padding(10**8)},
        "padded to multiples": {"padding": _padding(1) | {"strategy": "BatchLongest", "pad_to_multiple_of": 10**9}},
        "truncated to nothing": {"truncation": _truncation(0, 0)},
        "stride too long": {"truncation": _truncation(4, 100)},
        "template without words": {"post_processor": _template("[NOWHERE]")},
        "template that repeats": {"post_processor": _template("[CLS]", 100_000)},
        "bpe without merges": {"model": {"type": "BPE", "vocab": words, "merges": [["q", "z"]], "unk_token": "?"}},
        "bpe with bad merges": {"model": {"type": "BPE", "vocab": words, "merges": ["a", "b c d"]}},
        "unigram without unknown": {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}},
        "unigram with unknown outside": {"model": {"type": "Unigram", "unk_id": 99, "vocab": [["a", 0.0]]}},
        "wordpiece of much": {"model": {"type": "WordPiece", "vocab": words, "unk_token": "[UNK]",
                              "continuing_subword_prefix": "##", "max_input_chars_per_word": 10**9}},
        "unknown model": {"model": {"type": "Python", "code": "import os"}},
        "precompiled": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "precompiled garbage": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "////" * 10_000}},
        "added tokens beyond": {"added_tokens": [dict(sound["added_tokens"][0], id=2**32 - 1, content="zq")]},
        "many added tokens": {"added_tokens": [dict(sound["added_tokens"][0], id=n, content=f"t{n}")
                              for n in range(30_000)]},
        "control characters": {"model": model | {"vocab": words | {CONTROL: 90}}, "added_tokens": []},
        "fixed length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        "delimiter": {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "ab"}},
        "metaspace": {"pre_tokenizer": {"type": "Metaspace", "replacement": "", "prepend_scheme": "never"}},
        "strip": {"normalizer": {"type": "Strip", "strip_left": "yes", "strip_right": 1}},
    }  # fmt: skip


def _nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        inner = _sequence("normalizers", [inner])
    return inner


def _padding(length: int) -> dict[str, Any]:
    return {"strategy": {"Fixed": length}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[PAD]"}  # fmt: skip


def _truncation(length: int, stride: int) -> dict[str, Any]:
    return {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": stride}


def _template(token: str, times: int = 1) -> dict[str, Any]:
    parts = [{"SpecialToken": {"id": token, "type_id": 0}}] * times + [{"Sequence": {"id": "A", "type_id": 0}}]
    special = {token: {"id": token, "ids": [2], "tokens": [token]}} if times > 1 else {}
    return {"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": special}


SETTINGS: dict[str, dict[str, Any]] = {
    f"class {name}": {"tokenizer_class": name}
    for name in ("LlamaTokenizer", "GPT2TokenizerFast", "RagTokenizer", "Wav2Vec2CTCTokenizer", "T5Tokenizer",
        "os.system",
                 "PreTrainedTokenizer", "AutoTokenizer", "MistralCommonTokenizer", "BertJapaneseTokenizer", "NoSuch",
                 "TapasTokenizer", "CanineTokenizer", "ByT5Tokenizer", "JambaTokenizer", "PhobertTokenizer", "",
                 CONTROL)
} | {
    "code": {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]}, "tokenizer_class": "Tokenizer"},
    "code elsewhere": {"auto_map": {"AutoTokenizer": ["someone/evil--evil.Tokenizer", None]}},
    "no length": {"model_max_length": 0},
    "negative length": {"model_max_length": -3},
    "a word for a length": {"model_max_length": "long"},
    "an endless length": {"model_max_length": 1e30},
    "padding on the left": {"padding_side": "left", "truncation_side": "left"},
    "padding nowhere": {"padding_side": "middle"},
    "a list for padding": {"pad_token": ["a"]},
    "no padding": {"pad_token": None, "unk_token": None},
    "padding outside": {"pad_token": {"__type": "AddedToken", "content": "zz", "special": True}},
    "decoder of many": {"added_tokens_decoder": {str(n): {"content": f"x{n}", "special": True} for n in range(9000)}},
    "decoder far out": {"added_tokens_decoder": {"4294967295": {"content": "law0a", "special": False}}},
    "decoder of words": {"added_tokens_decoder": {"one": {"content": "law0a"}}},
    "template": {"chat_template": "{% for i in range(10**9) %}{{ i }}{% endfor %}"},
    "extra tokens": {"extra_special_tokens": {"image": "x", "__class__": "y"}, "additional_special_tokens": 3},
    "processor": {"processor_class": "EvilProcessor", "image_processor_type": "x"},
    "vocabulary elsewhere": {"vocab_file": "/etc/passwd", "tokenizer_file": "../notes.txt"},
    "name elsewhere": {"name_or_path": "someone/else", "use_fast": False, "from_slow": True},
    "transformer": {"transformers_version": "99", "_commit_hash": "x", "backend": "mistral-common"},
}  # fmt: skip


def tokenizer_cases(template: World) -> list[Case]:
    sound, cases = sound_tokenizer(template), []
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32, "pad_token": "[PAD]"}

    def of(tokenizer: Any, config: Any, number: int) -> Callable[[World], Sequence[Words]]:
        def lay_out(world: World) -> Sequence[Words]:
            text_model(world, "tokenizer.json", json.dumps(tokenizer))
            text_model(world, "tokenizer_config.json", json.dumps(config))
            text_model(world, "evil.py", "from pathlib import Path\nPath('code-was-run').touch()\n")
            if number % 2:
                (world.candidate / "vocab.txt").unlink()
            return chain(world, world.candidate, world.examples_csv)

        return lay_out

    for number, (name, change) in enumerate(tokenizers(sound).items()):
        cases.append(Case("tokenizer", name, of(sound | change, settings, number)))
    for number, (name, change) in enumerate(SETTINGS.items()):
        cases.append(Case("tokenizer", f"settings, {name}", of(sound, settings | change, number)))
        cases.append(Case("tokenizer", f"vocabulary and settings, {name}", _vocabulary_with(settings | change)))
    for number, (name, changed) in enumerate(mutations(sound, 60, seed=3)):
        cases.append(Case("tokenizer", f"json: {name}", of(changed, settings, number)))
    vocabularies: dict[str, bytes] = {
        "empty": b"", "nul": b"[PAD]\0\n[UNK]\n", "not utf-8": b"\xff\xfe\n[UNK]\n", "one line": b"x" * 10**6,
        "no special": b"a\nb\nc", "twice": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\na\n", "many": b"w\n" * 500_000,
        "control": f"[PAD]\n[UNK]\n{CONTROL}\n".encode(),
    }  # fmt: skip
    for name, content in vocabularies.items():
        cases.append(
            Case("tokenizer", f"vocabulary, {name}",
                 lambda world, content=content: chain(world, text_model(world, "vocab.txt", content),
                     world.examples_csv))
        )  # fmt: skip
    for name, content in {
        "text": b"hello",
        "cut": b'{"a": ',
        "deep": b"[" * 10**5,
        "nan": b'{"model_max_length": NaN}',
    }.items():
        for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
            cases.append(
                Case("tokenizer", f"{file}, {name}",
                     lambda world, file=file, content=content: chain(world, text_model(world, file, content),
                         world.examples_csv))
            )  # fmt: skip
    return cases


def _vocabulary_with(config: Any) -> Callable[[World], Sequence[Words]]:
    def lay_out(world: World) -> Sequence[Words]:
        return chain(world, text_model(world, "tokenizer_config.json", json.dumps(config)), world.examples_csv)

    return lay_out


def preprocessor_cases(template: World) -> list[Case]:
    path = "preprocessor_config.json"
    sound = load(template.home / "picture-candidate" / path)
    changes: dict[str, Any] = {
        "no spread": {"image_std": [0, 0, 0]}, "strings": {"image_mean": "abc", "image_std": "abc"},
        "one number": {"image_std": 1e-300}, "two numbers": {"image_mean": [1, 2]}, "words": {"image_mean": ["a"] * 3},
        "large": {"size": {"height": 4096, "width": 4096}}, "huge": {"size": {"height": 10**9, "width": 1}},
        "edge": {"size": {"shortest_edge": 4096}}, "a list": {"size": [8, 8, 8]}, "negative": {"size": -8},
        "many": {"image_mean": [0.5] * 10**5, "image_std": [0.5] * 10**5}, "nested": {"size": {"height": {"a": 1}}},
        "class": {"image_processor_type": "EvilProcessor", "auto_map": {"AutoImageProcessor": "evil.Processor"}},
        "tiny spread": {"image_std": [1e-320] * 3}, "huge mean": {"image_mean": [1e308] * 3},
    }  # fmt: skip
    changed = [(name, sound | change) for name, change in changes.items()]
    changed += [(name, document) for name, document in mutations(sound, 25, seed=4)]
    changed += [(f"all is {str(odd)[:20]!r}", odd) for odd in ODD]
    cases = []
    for number, (name, document) in enumerate(changed):

        def lay_out(world: World, document: Any = document, number: int = number) -> Sequence[Words]:
            folder = world.home / "picture-candidate"
            save(folder / path, document)
            if number % 3 == 2:  # a network whose preprocessor decides
                config = load(folder / "config.json")
                save(folder / "config.json", config | {"model_type": "convnext"})
            return chain(world, folder, world.examples)

        cases.append(Case("preprocessor", name, lay_out))
    return cases
