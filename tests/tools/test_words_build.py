"""Words: what its builder reads, keeps and leaves out, and how its sources are made."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from smatter.library.library import open_library
from smatter.train.supervised import TrainingSettings, TrainingStep
from smatter.train.texts import Omission

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tools" / "words"), str(ROOT / "tools" / "common")]

import debian  # noqa: E402
import diagnoses  # noqa: E402
import dictionaries  # noqa: E402
import few  # noqa: E402
import fortunes  # noqa: E402
import passages  # noqa: E402
import sources  # noqa: E402
import specialists  # noqa: E402
import tunings  # noqa: E402
import wordnet  # noqa: E402
from download import Package  # noqa: E402
from small_suites import text_suite, usual_suite  # noqa: E402


def builder() -> ModuleType:
    """tools/words/build.py, under a name of its own: other folders have a build.py too."""
    spec = importlib.util.spec_from_file_location("words_build", ROOT / "tools" / "words" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_text_in_two_classes_is_in_neither_and_one_that_names_its_class_in_none() -> None:
    found = {
        "bird": ["it sings at dawn", "It sings, at dawn!", "a small bird of prey", "lays eggs in spring", "too short"],
        "fish": ["swims in shoals", "lays eggs in SPRING", "a birdlike swimmer of seas"],
    }
    kept = passages.choose(found, least=1)
    assert {label: {passages._bare(text) for text in texts} for label, texts in kept.items()} == {
        "bird": {"it sings at dawn"},
        "fish": {"swims in shoals", "a birdlike swimmer of seas"},
    }
    assert passages.choose(found, least=2).keys() == {"fish"}


def test_the_choice_depends_on_the_texts_and_not_on_their_order() -> None:
    texts = [f"text number {number} of many" for number in range(40)]
    kept = passages.choose({"a": texts}, most=10)
    assert kept == passages.choose({"a": texts[::-1]}, most=10)
    assert len(kept["a"]) == 10 and set(kept["a"]) < set(texts)
    assert kept["a"] != tuple(sorted(texts)[:10])


def test_long_texts_end_with_a_word() -> None:
    cut = passages.tidy("word, " * 100)
    assert len(cut) <= passages.LONGEST and cut.endswith("word")
    assert passages.tidy("x" * 1000) == "x" * passages.LONGEST


def synset(number: int, words: str, gloss: str, *parents: int, kind: str = "@") -> str:
    names = words.split()
    pointers = " ".join(f"{kind} {parent:08d} n 0000" for parent in parents)
    head = f"{number:08d} 03 n {len(names):02x} {' '.join(f'{name} 0' for name in names)} {len(parents):03d}"
    return f"{head} {pointers} | {gloss}  "


def test_glosses_are_without_examples_and_single_things_are_of_no_kind() -> None:
    synsets = wordnet.parse(
        [
            "  1 This software and database is being provided",
            synset(1, "animal", "a living organism"),
            synset(2, "dog domestic_dog", 'a member of the genus; "the dog barked"; "a good dog"', 1),
            synset(3, "Laika", "the first in space", 2, kind="@i"),
        ]
    )
    assert synsets[2].words == ("dog", "domestic dog") and synsets[2].gloss == "a member of the genus"
    assert list(wordnet.below(synsets, 1)) == [2] and synsets[3].parent is None


def test_concepts_are_as_wide_as_may_be_and_apart(monkeypatch) -> None:
    monkeypatch.setattr(wordnet, "LARGEST", 4)
    monkeypatch.setattr(wordnet, "SMALLEST", 2)
    tree = {1: None, 2: 1, 3: 1, 4: 1, 21: 2, 22: 2, 23: 2, 31: 3, 41: 4, 42: 4}
    lines = [synset(number, f"w{number}", f"g{number}", *([over] if over else [])) for number, over in tree.items()]
    synsets = wordnet.parse(lines)
    assert set(wordnet.concepts(synsets, [1])) == {2, 4}
    assert set(wordnet.concepts(synsets, [1], without=4)) == {2}
    assert wordnet.glosses(synsets, [1]) == {"w2": ["g21", "g22", "g23"], "w4": ["g41", "g42"]}


def test_concepts_of_the_same_word_are_told_apart(monkeypatch) -> None:
    monkeypatch.setattr(wordnet, "SMALLEST", 1)
    lines = [
        synset(1, "play", "a game"),
        synset(2, "play drama", "a work"),
        synset(3, "a", "x", 1),
        synset(4, "b", "y", 2),
    ]
    assert set(wordnet.glosses(wordnet.parse(lines), [1, 2])) == {"play (a game)", "play (drama)"}


def test_quotations_lose_their_authors_and_what_was_printed_over() -> None:
    content = "One line,\nand another.\n\t\t-- Somebody, who\n%\n_\bA word -- with a dash.\n%\n%% a comment\nLast.\n"
    assert [" ".join(text.split()) for text in fortunes.quotations(content)] == [
        "One line, and another.", "A word -- with a dash.", "", "Last.",
    ]  # fmt: skip


def test_a_refrain_is_taken_off_and_a_shared_first_word_is_not() -> None:
    texts = [f"Excuse #{number}: the {word} is out" for number, word in enumerate(("fan", "disk", "cat"))]
    assert fortunes.without_refrain([*texts, "no such start"]) == [
        "fan is out",
        "disk is out",
        "cat is out",
        "no such start",
    ]
    assert fortunes.without_refrain(["The cat", "The dog", "A cow", "An ox"]) == [
        "The cat",
        "The dog",
        "A cow",
        "An ox",
    ]


def test_definitions_follow_their_field_as_far_as_the_next_remark() -> None:
    content = """Albacore \\Al"ba*core\\, n. (Zool.)
   A large {tunny}, found in warm
   seas; as, the white one. [1913 Webster]

   2. (Chem.) An acid of salt. --Shak.
   {Some ant} (Zool.), a species that farms (rarely)
"""
    assert dictionaries.fields_of_words(content) == {
        "zoology": ["A large tunny, found in warm seas", "a species that farms"],
        "chemistry": ["An acid of salt"],
    }


def test_terms_are_of_their_first_subject_and_first_paragraph() -> None:
    content = "BAD\n\n   <humour, jargon> A {bug} by\n   design.\n\n   More of it.\n\nrow\n\n   <data> A line.\n\n"
    found = dictionaries.subjects_of_terms(content)
    assert {subject: [" ".join(text.split()) for text in texts] for subject, texts in found.items()} == {
        "humour": ["A bug by design."],
        "data": ["A line."],
    }


def test_diagnoses_are_of_their_block_down_to_the_first_parts() -> None:
    finer = "<diag><name>A05.11</name><desc>of the left hand</desc></diag>"
    part = f"<diag><name>A05.1</name><desc>Botulism</desc>{finer}</diag>"
    category = f"<diag><name>A05</name><desc>Other intoxications</desc>{part}</diag>"
    section = f"<section><desc>Intestinal diseases (A00-A09)</desc>{category}</section>"
    content = f"<table><chapter>{section}</chapter></table>".encode()
    assert diagnoses.blocks(content) == {"Intestinal diseases": ["Other intoxications", "Botulism"]}


def test_descriptions_are_one_for_each_source_and_without_asides() -> None:
    stanzas = [
        ("a", None, "math", "computer algebra (data files)"), ("a-doc", "a", "math", "computer algebra - manual"),
        ("b", "a (1.0)", "contrib/net", "a client"), ("libc", None, "libs", "shared libraries"),
    ]  # fmt: skip
    content = "\n\n".join(
        f"Package: {name}\n" + (f"Source: {source}\n" if source else "") + f"Description: {text}\nSection: {section}"
        for name, source, section, text in stanzas
    )
    assert debian.sections(content) == {"mathematics": ["computer algebra"], "net": ["a client"]}
    assert debian.version_of(content) != debian.version_of(content + "\n")


def test_domains_become_a_suite_with_roles_and_shared_concepts() -> None:
    classes = {label: tuple(f"{label} {number}" for number in range(3)) for label in ("law", "food")}
    found = [
        passages.Domain("quotations", "Quotations", "id", classes, ("fortunes",)),
        passages.Domain("fields", "Fields", "ood", {"Law": ("a b c",), "golf": ("d e f",)}, ("dict-gcide",)),
    ]
    suite = builder().suite_of(found, ({"name": "fortunes"},))
    assert [(each.name, each.role, each.packages) for each in suite.domains] == [
        ("quotations", "id", ("fortunes",)), ("fields", "ood", ("dict-gcide",)),
    ]  # fmt: skip
    keys = [{each.key for each in domain.classes} for domain in suite.domains]
    assert keys[0] & keys[1] == {"law"} and suite.packages == ({"name": "fortunes"},)


def test_every_package_is_pinned() -> None:
    pinned = json.loads((ROOT / "tools" / "words" / "packages.json").read_text())
    wanted = {*fortunes.ENGLISH, *fortunes.GERMAN, wordnet.PACKAGE, "dict-gcide", "dict-foldoc", diagnoses.PACKAGE}
    assert {name for names in pinned.values() for name in names} == wanted
    assert builder().LICENCES.keys() <= wanted


def test_a_wheel_is_read_member_by_member(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.package", "w") as archive:
        archive.writestr("x/data.txt", "data")
        archive.writestr("x-1.dist-info/METADATA", "Name: x\nLicense: MIT\n")
    package = Package("pypi", "x", "1", tmp_path / "x.package")
    assert package.read("x/data.txt") == b"data" and "x/none" not in package and package.licence() == "MIT"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A tiny BERT that knows the words of a tiny suite."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "/", *"0123456789", *(f"k{n}" for n in range(30)), "people"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(BertConfig(**sizes, vocab_size=len(words), max_position_embeddings=32))
    model.save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "vocab.txt").write_text("\n".join(words))
    return tmp_path / "base"


def test_a_specialist_keeps_its_base_but_for_what_it_learns_and_goes_on_where_it_was(
    base: Path, tmp_path: Path
) -> None:
    suite = text_suite({"people": ("id", [f"k{number}" for number in range(20)])})
    settings = TrainingSettings(n_steps=6, batch_size=8, imprint=True, variation=Omission(0.1))

    def stop(step: TrainingStep) -> None:
        if step.number == 4:
            raise KeyboardInterrupt

    whole = sources.tune(base, suite, ("people",), settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        sources.tune(base, suite, ("people",), settings, tmp_path / "parts", stop)
    assert not (tmp_path / "parts").exists()
    parts = sources.tune(base, suite, ("people",), settings, tmp_path / "parts")
    before, one, other = (load_file(folder / "model.safetensors") for folder in (base, whole, parts))
    assert before.keys() == one.keys()
    for name, tensor in before.items():
        assert torch.equal(one[name], other[name])
        stays = name.startswith(specialists.FROZEN) or not tensor.is_floating_point()
        assert torch.equal(one[name], tensor) == stays or name.endswith("key.bias")  # a bias of keys has no effect


def test_specialists_and_base_become_a_library(base: Path, tmp_path: Path, monkeypatch) -> None:
    suite = text_suite({"people": ("id", [f"k{number}" for number in range(20)])})
    monkeypatch.setattr(sources, "SPECIALISTS", {"things": ("people",)})
    settings = TrainingSettings(n_steps=2, batch_size=8, variation=Omission())
    sources.tune(base, suite, ("people",), settings, tmp_path / "things")
    sources.write_library(tmp_path, ["base", *sources.SPECIALISTS], tmp_path / "library")
    assert open_library(tmp_path / "library").names == ("base", "things")


def test_fewer_texts_leave_every_class_in_its_split() -> None:
    suite = usual_suite()
    fewer = few.few_texts(suite, 5)
    assert fewer.split_of == suite.split_of
    for domain, kept in zip(suite.domains, fewer.domains, strict=True):
        assert [each.name for each in kept.classes] == [each.name for each in domain.classes]
        for before, after in zip(domain.classes, kept.classes, strict=True):
            texts = set(kept.store.take(range(after.start, after.stop)))
            assert len(texts) == 5 and texts < set(domain.store.take(range(before.start, before.stop)))


def test_specialists_of_a_recipe_part_from_its_trunk(base: Path, tmp_path: Path, monkeypatch) -> None:
    suite = text_suite({name: ("id", [f"{name[0]}{number}" for number in range(20)]) for name in ("people", "kinds")})
    own, trunk = (TrainingSettings(n_steps=n, batch_size=8, imprint=True, variation=Omission(0.1)) for n in (2, 3))
    monkeypatch.setattr(tunings, "SPECIALISTS", {"things": ("people",), "notions": ("kinds",)})
    monkeypatch.setattr(tunings, "INSIDE", ("kinds", "people"))
    monkeypatch.setattr(tunings, "RECIPES", {"a trunk": tunings.Recipe(own, trunk=trunk), "none": tunings.Recipe(own)})
    tunings.tune_all(base, suite, tmp_path, "a trunk")
    tunings.tune_all(base, suite, tmp_path, "none")
    again = sources.tune(tmp_path / "a-trunk" / "trunk", suite, ("people",), own, tmp_path / "again")

    def matrix(folder: Path) -> torch.Tensor:
        return load_file(folder / "model.safetensors")["encoder.layer.0.output.dense.weight"]

    tuned = [matrix(tmp_path / recipe / name) for recipe in ("a-trunk", "none") for name in ("things", "notions")]
    assert torch.equal(tuned[0], matrix(again))
    assert all(not torch.equal(one, other) for number, one in enumerate(tuned) for other in tuned[:number])
