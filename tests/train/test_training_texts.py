"""Training on texts: it learns, it repeats itself, and an interruption leaves no trace."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_suites import text_suite
from transformers import BertTokenizer

from smatter.backbones.network import Network
from smatter.backbones.texts import Tokenizer
from smatter.errors import InvalidSettings, InvalidSuite
from smatter.tasks.suite import Suite
from smatter.train.pictures import Variation
from smatter.train.supervised import TrainingSettings, TrainingStep, train_backbone
from smatter.train.texts import Omission, TrainingTexts

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "/", "law", "food", *(str(n) for n in range(12))]
WORDS += [f"k{number}" for number in range(40)]
CONFIG = {
    "model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 0,
}  # fmt: skip
SETTINGS = TrainingSettings(n_steps=12, batch_size=16, variation=Omission(0.2))


@pytest.fixture
def suite() -> Suite:
    """Texts that say which class they are of: `law / k3 / 5`."""
    return text_suite({"law": ("id", [f"k{n}" for n in range(20)]), "food": ("id", [f"k{n}" for n in range(20, 40)])})


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(str(tmp_path / "vocab.txt"), model_max_length=16).save_pretrained(tmp_path / "tokenizer")
    return Tokenizer.of(CONFIG, tmp_path / "tokenizer")


@pytest.fixture
def texts(suite: Suite, tokenizer: Tokenizer) -> TrainingTexts:
    return TrainingTexts.of(suite, "source", {"law": 0.5, "food": 0.5}, tokenizer)


def weights(network: Network) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in network.model.parameters()])


def test_drawn_texts_are_of_their_class_in_the_shares_asked_for(suite: Suite, tokenizer: Tokenizer) -> None:
    texts = TrainingTexts.of(suite, "source", {"law": 0.75, "food": 0.25}, tokenizer)
    names = [each.name for domain in suite.domains for each in suite.classes(domain, "source")]
    assert texts.n_classes == len(names)
    tokens, labels = texts.draw(4000, torch.Generator().manual_seed(0))
    named = [WORDS[number] for number in tokens["input_ids"][:, 3].tolist()]  # behind [CLS], domain and /
    assert named == [names[label] for label in labels.tolist()] and set(named) == set(names)
    assert float((texts.domain_of[labels] == 0).float().mean()) == pytest.approx(0.75, abs=0.03)
    whole = torch.cat([part["input_ids"] for part in texts.parts()])
    assert [WORDS[number] for number in whole[:, 3].tolist()] == [names[label] for label in texts.labels.tolist()]


def test_texts_are_cut_to_the_tokenizers_length(suite: Suite, tokenizer: Tokenizer) -> None:
    short = TrainingTexts.of(suite, "source", {"law": 1.0}, replace(tokenizer, n_tokens=4))
    assert short.ids.shape[1] == 4


def test_a_held_out_domain_is_not_learnt_from(suite: Suite, tokenizer: Tokenizer) -> None:
    held = replace(suite, domains=(replace(suite.domains[0], role="ood"), suite.domains[1]))
    with pytest.raises(InvalidSuite, match="leave it out"):
        TrainingTexts.of(held, "source", {"law": 1.0}, tokenizer)


def test_omission_hides_a_share_of_the_tokens_but_never_the_first(texts: TrainingTexts) -> None:
    tokens, _ = texts.draw(2000, torch.Generator().manual_seed(0))
    before = tokens["attention_mask"].clone()
    seen = Omission(0.3)(tokens, torch.Generator().manual_seed(1))["attention_mask"]
    assert torch.equal(tokens["attention_mask"], before) and bool((seen <= before).all()) and bool(seen[:, 0].all())
    share = float(seen[:, 1:].sum() / before[:, 1:].sum())
    assert share == pytest.approx(0.7, abs=0.02)
    assert torch.equal(Omission(0.0)(tokens, torch.Generator())["attention_mask"], before)
    with pytest.raises(InvalidSettings, match="below 1"):
        Omission(1.0)


def test_training_learns(texts: TrainingTexts) -> None:
    steps: list[TrainingStep] = []
    settings = TrainingSettings(n_steps=120, batch_size=32, learning_rate=1e-2, variation=Omission(0.05))
    train_backbone(Network(CONFIG), texts, settings, watch=steps.append)
    early, late = (np.mean([step.accuracy for step in part]) for part in (steps[:10], steps[-10:]))
    assert late > early + 0.3


def test_an_interruption_leaves_no_trace(texts: TrainingTexts, tmp_path: Path) -> None:
    whole, parts, again = Network(CONFIG), Network(CONFIG), Network(CONFIG)
    train_backbone(whole, texts, SETTINGS, frozen=("embeddings",))

    def stop(step: TrainingStep) -> None:
        if step.number == 8:
            raise KeyboardInterrupt

    state = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_backbone(parts, texts, SETTINGS, state, save_every=5, watch=stop, frozen=("embeddings",))
    steps: list[TrainingStep] = []
    train_backbone(again, texts, SETTINGS, state, save_every=5, watch=steps.append, frozen=("embeddings",))
    assert steps[0].number == 6
    assert torch.equal(weights(again), weights(whole))


def test_a_state_of_other_texts_or_other_frozen_parts_is_not_gone_on_from(texts: TrainingTexts, tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    train_backbone(Network(CONFIG), texts, SETTINGS, state)
    other = replace(texts, ids=texts.ids.flip(0))
    for these, frozen in ((other, ()), (texts, ("embeddings",)), (other, ())):
        steps: list[TrainingStep] = []
        train_backbone(Network(CONFIG), these, SETTINGS, state, watch=steps.append, frozen=frozen)
        assert len(steps) == SETTINGS.n_steps


def test_what_is_frozen_stays_and_all_else_moves(texts: TrainingTexts) -> None:
    network, before = Network(CONFIG), Network(CONFIG)
    train_backbone(network, texts, SETTINGS, frozen=("embeddings", "pooler"))
    for (name, parameter), old in zip(network.model.named_parameters(), before.model.parameters(), strict=True):
        stays = name.startswith(("embeddings", "pooler")) or name.endswith("key.bias")  # which has no effect
        assert torch.equal(parameter, old) == stays or name.endswith("key.bias"), name
        assert not parameter.requires_grad


def test_texts_are_not_varied_as_pictures_are(texts: TrainingTexts) -> None:
    with pytest.raises(InvalidSettings, match="Omission does"):
        train_backbone(Network(CONFIG), texts, TrainingSettings(n_steps=1, variation=Variation()))
