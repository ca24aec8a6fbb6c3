"""From checkpoints to predictions in every family of networks, with every head."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from tiny_libraries import LAYERS, SPECIAL, WORDS, pixels_support, random_library, texts_support
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import smatter
from smatter.backbones.heads import HEADS
from smatter.backbones.network import Network, load_tensors
from smatter.cli.main import main
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.methods.solver import SolverSettings
from smatter.tasks.support import Support
from smatter.units.groups import find_groups

TEXT = {"vocab_size": len(WORDS), "max_position_embeddings": 32}
GPT2 = {"vocab_size": len(WORDS), "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}


def make(model: str, config: str, **settings: object) -> Callable[[], PreTrainedModel]:
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**settings))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "convnext": make("ConvNextModel", "ConvNextConfig", hidden_sizes=[8, 12], depths=[1, 2], num_stages=2,
                     image_size=8, patch_size=2),
    "vit": make("ViTModel", "ViTConfig", **LAYERS, image_size=8, patch_size=4),
    "bert": make("BertModel", "BertConfig", **LAYERS, **TEXT),
    "llama": make("LlamaModel", "LlamaConfig", **LAYERS, **TEXT, num_key_value_heads=1),
    "gpt2": make("GPT2Model", "GPT2Config", **GPT2),
}  # fmt: skip
TEXTUAL = ("bert", "llama", "gpt2")
DECODERS = ("llama", "gpt2")


@dataclass(frozen=True)
class Family:
    name: str
    library: Library
    support: Support

    @property
    def queries(self) -> torch.Tensor | list[str]:
        other = texts_support("law", seed=9) if self.name in TEXTUAL else pixels_support(seed=9)
        return other.inputs if isinstance(other.inputs, torch.Tensor) else list(other.inputs)


def write_word_tokenizer(folder: Path) -> None:
    """A word is a token; without padding token, as decoders' often are."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)


def make_library(folder: Path, model: PreTrainedModel, is_decoder: bool) -> Library:
    if is_decoder:
        write_word_tokenizer(folder / "base")
    return random_library(folder, model)


@pytest.fixture(scope="module", params=MODELS)
def family(request, tmp_path_factory) -> Family:
    name = request.param
    library = make_library(tmp_path_factory.mktemp(name), MODELS[name](), name in DECODERS)
    return Family(name, library, texts_support("law") if name in TEXTUAL else pixels_support())


@pytest.mark.parametrize(
    ("method", "settings"), [("evidence", None), ("solver", SolverSettings(n_steps=3, per_module=True))]
)
@pytest.mark.parametrize("head", HEADS)
def test_a_task_is_adapted_to_and_its_recipe_rebuilds_it(
    family: Family, method: str, settings: SolverSettings | None, head, tmp_path: Path
) -> None:
    adapted = smatter.adapt(family.library, family.support, method, settings, head=head)
    found = adapted.predict(family.queries)
    n_classes = len(family.support.class_names)
    assert found.probabilities.shape == (len(family.queries), n_classes)
    torch.testing.assert_close(found.probabilities.sum(dim=1), torch.ones(len(family.queries)))
    assert 0 <= adapted.held_out_accuracy <= 1 and adapted.head == head

    adapted.save(tmp_path / "task.safetensors")
    library = smatter.open_library(family.library.folder)
    rebuilt = Network(library.base.config)
    load_tensors(rebuilt.model, library.compose(smatter.read_recipe(tmp_path / "task.safetensors")).tensors())
    prepare = LiveMixture(library).prepare
    with torch.no_grad():
        shots, queries = (
            rebuilt.features(prepare(inputs, family.support.kind)) for inputs in (family.support.inputs, family.queries)
        )
    fitted = HEADS[head](shots, torch.tensor(family.support.labels), n_classes)
    assert adapted.recipe.head
    expected = (fitted.logits(queries) / adapted.recipe.head.temperature).softmax(dim=1)
    torch.testing.assert_close(expected, found.probabilities, rtol=1e-4, atol=1e-5)


def test_every_layer_of_the_library_has_groups(family: Family) -> None:
    groups = find_groups(family.library.specs, family.library.base.config, family.library.partition)
    assert len(groups) == (3 if family.name == "convnext" else 4)


@pytest.mark.parametrize("name", TEXTUAL)
def test_what_stands_right_of_a_text_does_not_matter(name: str, tmp_path: Path) -> None:
    library = make_library(tmp_path, MODELS[name](), name in DECODERS)
    live = LiveMixture(library)
    texts = ["law0a filler1", "law1b filler2 law1c filler4 filler5 filler6 law1a"]
    inputs = live.prepare(texts, "texts")
    assert inputs["attention_mask"].sum(dim=1).tolist() == ([2, 7] if name in DECODERS else [4, 9])
    assert WORDS.index("law1b") in inputs["input_ids"]
    together = live.features(inputs)
    alone = torch.cat([live.features(live.prepare([text], "texts")) for text in texts])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    ids, mask = (torch.nn.functional.pad(inputs[part], (0, 3)) for part in ("input_ids", "attention_mask"))
    noise = torch.randint(len(SPECIAL), len(WORDS), ids.shape, generator=torch.Generator().manual_seed(0))
    spoilt = {"input_ids": torch.where(mask == 1, ids, noise), "attention_mask": mask}
    torch.testing.assert_close(live.features(spoilt), together, rtol=1e-4, atol=1e-5)
    adapted = smatter.adapt(library, texts_support("law"))
    both, one = adapted.predict(texts), adapted.predict(texts[:1])
    torch.testing.assert_close(both.probabilities[:1], one.probabilities, rtol=1e-3, atol=1e-4)


LABELS = {f"law-{number}": 6 - number for number in range(4)} | {f"other-{number}": number for number in range(3)}
"""More classes than the task has, in another order."""
NAMED = {"label2id": LABELS, "id2label": {number: name for name, number in LABELS.items()}}

CLASSIFIERS = {
    "bert": make("BertForSequenceClassification", "BertConfig", **LAYERS, **TEXT, **NAMED),
    "llama": make("LlamaForSequenceClassification", "LlamaConfig", **LAYERS, **TEXT, **NAMED, pad_token_id=0),
    "gpt2": make("GPT2ForSequenceClassification", "GPT2Config", **GPT2, **NAMED),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_checkpoints_own_head_predicts_what_the_exported_model_does(name: str, tmp_path: Path, capsys) -> None:
    library = make_library(tmp_path, CLASSIFIERS[name](), name in DECODERS)
    support = texts_support("law")
    adapted = smatter.adapt(library, support, head="linear")
    texts = [*support.inputs, "law1a"]
    found = adapted.predict(texts).probabilities
    assert found.shape == (17, 4)
    adapted.save(tmp_path / "task")
    out = tmp_path / "out"
    assert main(["compose", str(library.folder), "--recipe", str(tmp_path / "task"), "-o", str(out)]) == 0
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    prepare = LiveMixture(library).prepare
    columns = [LABELS[name] for name in support.class_names]
    with torch.no_grad():
        rows = [model(**prepare([text], "texts")).logits[0, columns] for text in texts]
    torch.testing.assert_close(torch.stack(rows).softmax(dim=1), found, rtol=1e-4, atol=1e-5)
    hits = found[:-1].argmax(dim=1) == torch.tensor(support.labels)
    assert adapted.held_out_accuracy == pytest.approx(float(hits.double().mean()))


def test_the_own_head_of_picture_networks(vit_library: Library) -> None:
    support = pixels_support()
    names = [f"LABEL_{label}" for label in support.labels]
    adapted = smatter.adapt(vit_library, Support.of(support.inputs, names), head="linear")
    assert adapted.predict(support.inputs).probabilities.shape == (len(support), 3)


def test_a_head_that_cannot_be_used_is_refused_in_one_line(
    vit_library: Library, bert_library: Library, tmp_path: Path
) -> None:
    support = texts_support("law")
    names = [f"LABEL_{label % 2}" for label in support.labels]
    decoder = make_library(tmp_path, make("MPNetModel", "MPNetConfig", **LAYERS, **TEXT)(), is_decoder=False)
    for library, task, head, message in (
        (vit_library, pixels_support(), "linear", "does not know the class '0'"),
        (bert_library, Support.of(support.inputs, names), "linear", "have no classification head"),
        (decoder, Support.of(support.inputs, names), "linear", "have no classification head"),
        (vit_library, pixels_support(), "forest", "unknown head 'forest': use prototype"),
    ):
        with pytest.raises(InvalidSettings, match=message) as refusal:
            smatter.adapt(library, task, head=head)
        assert "\n" not in str(refusal.value)


def test_the_command_line_takes_a_head(bert_library: Library, tmp_path: Path, capsys) -> None:
    support = texts_support("law")
    rows = [f"{text},{support.class_names[label]}" for text, label in zip(support.inputs, support.labels, strict=True)]
    (tmp_path / "shots.csv").write_text("\n".join(["text,label", *rows]))
    words = [str(bert_library.folder), str(tmp_path / "shots.csv")]
    for command in ("adapt", "solve"):
        assert main([command, *words, "--head", "ridge", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["head"] == "ridge" and 0 <= told["held_out_accuracy"] <= 1
    assert main(["adapt", *words, "--head", "logistic"]) == 0
    assert "the logistic head recognises" in capsys.readouterr().out
    assert main(["adapt", *words, "--head", "forest"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["adapt", *words, "--head", "linear"]) == 2
    assert "does not know the class" in capsys.readouterr().err
