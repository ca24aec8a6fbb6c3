"""The sample of Words, all the way: suite, task, support, a library of tiny networks, weights and predictions."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

import smatter
from smatter.cli.main import main
from smatter.library.edit import add_source, init_library
from smatter.tasks.open import open_suite
from smatter.tasks.rows import raw_rows

SAMPLE = Path(__file__).parents[1] / "data" / "words-sample"


def vocabulary() -> list[str]:
    """Every word of the sample."""
    words = {
        word for path in sorted(SAMPLE.glob("*.jsonl")) for row in raw_rows(path) for word in row.cells["text"].split()
    }
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word.lower().strip(".,;()") for word in words})]


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """A tiny BERT, and two perturbations of it."""
    folder = tmp_path_factory.mktemp("texts")
    words = vocabulary()
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(BertConfig(**sizes, vocab_size=len(words), max_position_embeddings=64))
        for name in ("base", "one", "two"):
            model.save_pretrained(folder / name)
            (folder / name / "vocab.txt").write_text("\n".join(words))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.02 * torch.randn(parameter.shape))
    init_library(folder / "library", folder / "base")
    for name in ("one", "two"):
        add_source(folder / "library", folder / name)
    return folder / "library"


def test_the_sample_is_small_says_its_licence_and_is_what_the_builder_writes() -> None:
    suite = open_suite(SAMPLE)
    assert suite.kind == "texts" and [domain.role for domain in suite.domains] == ["id", "id", "ood"]
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 50_000
    assert [package["name"] for package in suite.packages] == ["wordnet-base"]
    assert "Princeton University" in (SAMPLE / "NOTICE").read_text()
    for domain in suite.domains:
        texts = domain.store.take(range(len(domain.store)))
        assert len(domain.classes) == 12 and len(set(texts)) == len(texts) == 96


@pytest.mark.parametrize("method", ["evidence", "solver", "greedy_soup"])
def test_a_task_of_texts_goes_from_the_suite_to_predictions(library: Path, method: str) -> None:
    settings = smatter.SamplerSettings("all", role="ood", n_way=(3, 3), n_shot=(3, 3), n_query=5)
    episode = smatter.Sampler(open_suite(SAMPLE), settings, seed=0).episode(0)
    support = smatter.support_of(episode)
    assert support.kind == "texts" and len(support) == 9
    adapted = smatter.adapt(library, support, method)
    predicted = adapted.predict(list(episode.query.inputs))
    assert len(predicted.names) == len(episode.query) and set(predicted.names) <= set(episode.class_names)
    assert smatter.adapt(library, support, method).predict(list(episode.query.inputs)).names == predicted.names


def test_the_commands_take_it_too(library: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(SAMPLE, tmp_path / "words")
    task = ["suite", "task", str(tmp_path / "words"), "--split", "all", "--way", "3", "--shot", "2"]
    assert main([*task, "-o", str(tmp_path / "task")]) == 0
    (support,) = (tmp_path / "task").glob("support*")
    assert main(["adapt", str(library), str(support), "-o", str(tmp_path / "recipe.safetensors")]) == 0
    assert (tmp_path / "recipe.safetensors").exists()
    capsys.readouterr()
    assert main(["suite", "show", str(tmp_path / "words")]) == 0
    assert "WordNet3.0" in capsys.readouterr().out
