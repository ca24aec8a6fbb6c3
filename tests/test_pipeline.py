"""`smatter.adapt` from pictures, texts and tensors to predictions."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_libraries import texts_support
from toy_suite import SIZE, draw_episode

import smatter
from smatter.adapted import Adapted
from smatter.cli.main import main
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSupport, NotFound
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.methods import Fit
from smatter.route.evidence import Evidence, gather_evidence
from smatter.steps import judge
from smatter.steps.judge import kept_or_single
from smatter.tasks.support import Support


def test_adapting_by_evidence_recognises_new_pictures(toy) -> None:
    episode = draw_episode(toy.domains, "red", 3)
    adapted = smatter.adapt(toy.library, episode.support)
    evidence = adapted.fit.evidence
    assert adapted.method == "evidence" and evidence is not None
    assert adapted.mixture.sources == evidence.mixture.sources
    assert adapted.mixture.rows[0] == pytest.approx(evidence.mixture.rows[0], abs=1e-12)
    found = adapted.predict(episode.queries)
    assert found.probabilities.shape == (len(episode.labels), 5)
    torch.testing.assert_close(found.probabilities.sum(dim=1), torch.ones(len(episode.labels)))
    hits = torch.tensor([int(name) for name in found.names]) == episode.labels
    assert float(hits.double().mean()) > 0.7


def test_adapting_by_the_solver_fits_no_worse(toy, tmp_path: Path) -> None:
    episode = draw_episode(toy.domains, "red+green", 3)
    routed, solved = smatter.adapt(toy.library, episode.support), smatter.solve_task(toy.library, episode.support)
    assert solved.method == "solver" and solved.loss <= routed.loss + 1e-6
    solved.save(tmp_path / "task.safetensors")
    assert smatter.read_recipe(tmp_path / "task.safetensors").mixture == solved.mixture


def test_adapting_to_texts(topics: Library) -> None:
    adapted = smatter.adapt(topics.folder, texts_support("food", n_shot=4))
    assert "food" in adapted.mixture.active_sources
    found = adapted.predict(["food0a filler1 food0c", "filler3 food3b food3f filler2"])
    assert found.names == ("food-0", "food-3")
    assert adapted.predict([]).names == ()


def test_adapting_to_a_table_of_texts(topics: Library, tmp_path: Path, capsys) -> None:
    support = texts_support("law")
    rows = [f"{text},{support.class_names[label]}" for text, label in zip(support.inputs, support.labels, strict=True)]
    (tmp_path / "shots.csv").write_text("\n".join(["text,label", *rows]))
    adapted = smatter.adapt(topics, tmp_path / "shots.csv")
    assert adapted.predict(["law1a law1d filler4"]).names == ("law-1",)
    words = ["solve", str(topics.folder), str(tmp_path / "shots.csv"), "-o", str(tmp_path / "r"), "--elements", "20"]
    assert main(words) == 0 and "law" in capsys.readouterr().out


def test_adapting_to_a_folder_of_pictures(toy, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for label in ("dark", "bright"):
        (tmp_path / "shots" / label).mkdir(parents=True)
        for number in range(3):
            level = 60 if label == "dark" else 190
            noise = torch.randint(-40, 40, (SIZE, SIZE, 3), generator=generator)
            picture = Image.fromarray((level + noise).to(torch.uint8).numpy())
            picture.save(tmp_path / "shots" / label / f"{number}.png")
    adapted = smatter.adapt(toy.library, tmp_path / "shots")
    pictures = [tmp_path / "shots" / "dark" / "0.png", Image.new("RGB", (30, 30), (190, 190, 190))]
    assert adapted.predict(pictures).names == ("dark", "bright")
    assert adapted.predict([str(pictures[0])]).names == ("dark",)
    with pytest.raises(smatter.SmatterError, match="does not exist"):
        adapted.predict(["a text"])
    (tmp_path / "taken").touch()
    with pytest.raises(smatter.SmatterError, match="is a file"):
        smatter.adapt(toy.library, tmp_path / "shots", cache=tmp_path / "taken")


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_one_shot_tasks_work(toy, topics: Library, kind: str) -> None:
    if kind == "texts":
        adapted = smatter.adapt(topics, texts_support("law", n_shot=1), "solver")
        assert adapted.predict(["law2a law2b filler0"]).names == ("law-2",)
        return
    episode = draw_episode(toy.domains, "red", 1, n_shot=1)
    adapted = smatter.adapt(toy.library, episode.support)
    again = smatter.adapt(toy.library, episode.support)
    assert adapted.mixture == again.mixture
    hits = adapted.predict(episode.queries).probabilities.argmax(dim=1) == episode.labels
    assert float(hits.double().mean()) > 0.4


def test_other_views_are_a_matter_of_the_generator(toy) -> None:
    episode = draw_episode(toy.domains, "red", 1, n_shot=1)
    live = LiveMixture(toy.library)
    first, second = (
        gather_evidence(live, leave_one_out(live, episode.support, torch.Generator().manual_seed(seed)))
        for seed in (1, 2)
    )
    assert first.losses != second.losses


def test_predicting_something_else_is_refused(toy) -> None:
    adapted = smatter.adapt(toy.library, draw_episode(toy.domains, "red", 1).support)
    for wrong, message in (
        ("a text", "does not exist"),  # strings are paths where a network takes pictures
        ([3], "not an image"),
        (torch.zeros(1, 3, 5, 5), "takes 12 x 12"),
        (torch.full((1, 3, SIZE, SIZE), torch.nan), "NaN"),
    ):
        with pytest.raises((InvalidSupport, NotFound), match=message):
            adapted.predict(wrong)


def test_a_library_without_tokenizer_says_so(topics: Library, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(topics.base.folder, tmp_path / "base")
    for file in (tmp_path / "base").glob("vocab.txt"):
        file.unlink()
    library = smatter.init_library(tmp_path / "library", tmp_path / "base")
    with pytest.raises(smatter.SmatterError, match="has no tokenizer"):
        smatter.adapt(library, texts_support("law"))
    ids = torch.randint(5, 20, (4, 6), generator=torch.Generator().manual_seed(0))
    assert smatter.adapt(library, Support.of(ids, [0, 0, 1, 1])).predict(ids).names


def made_up_fit(losses: tuple[float, ...], error: float) -> Fit:
    evidence = Evidence(("a", "b"), losses, (0.5, 0.5), error, 1.0)
    return Fit(Mixture.of({"a": 0.5, "b": 0.5}), evidence=evidence)


@pytest.mark.parametrize(
    ("loss", "kept", "word"),
    [(0.5, True, ""), (0.75, True, "is kept"), (0.85, False, "a alone is taken"), (float("nan"), True, "")],
)
def test_a_source_that_is_clearly_better_alone_is_taken(loss: float, kept: bool, word: str) -> None:
    fit = made_up_fit((0.6, 0.9), 0.1)
    judged = kept_or_single(fit, loss)
    assert (judged.mixture == fit.mixture) == kept
    assert word in " ".join(judged.notes)
    if not kept:
        assert judged.mixture == Mixture.of({"a": 1.0})


def test_what_was_not_compared_with_sources_is_kept() -> None:
    fit = Fit(Mixture.of({"a": 1.0}))
    assert kept_or_single(fit, 9.0) is fit
    broken = made_up_fit((float("nan"), 0.4), 0.1)
    assert kept_or_single(broken, 0.3) is broken


def test_adapt_takes_the_single_source_where_the_mixture_is_clearly_worse(toy, monkeypatch) -> None:
    episode = draw_episode(toy.domains, "red+green", 4)
    plain = smatter.adapt(toy.library, episode.support, "solver")
    monkeypatch.setattr(judge, "CLEARLY", -100.0)
    monkeypatch.setattr(Adapted, "loss", 10.0)
    single = smatter.adapt(toy.library, episode.support, "solver")
    assert plain.fit.evidence and single.mixture == Mixture.of({plain.fit.evidence.best: 1.0})
    assert single.recipe.mixture == single.fit.mixture and "is taken instead" in single.fit.notes[-1]
