"""Greedy soup: it ends where adding sources one by one, best first, ends, and never above the best source."""

import pytest
import torch
from tiny_libraries import pixels_support
from toy_suite import draw_episode

from smatter.compose.mixture import Mixture
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods.greedy_soup import greedy_soup
from smatter.tasks.support import Support


@pytest.mark.parametrize("names", ["red", "red+green", "green+blue"])
def test_it_is_what_the_recipe_of_the_paper_gives(toy, names: str) -> None:
    live = LiveMixture(toy.library)
    task = Task.of(live, draw_episode(toy.domains, names, 4).support)

    def loss(*sources: str) -> float:
        live.compose(Mixture.of(dict.fromkeys(sources, 1 / len(sources))))
        return live.loss(task.objective)

    fit = greedy_soup(live, task)
    soup: list[str] = []
    for name in sorted(toy.library.names, key=loss):
        if not soup or loss(*soup, name) <= loss(*soup):
            soup.append(name)
    assert set(fit.mixture.sources) == set(soup) and set(fit.mixture.rows[0]) == {1 / len(soup)}
    assert fit.trace.losses[-1] == pytest.approx(loss(*soup), rel=1e-5)
    assert list(fit.trace.losses) == sorted(fit.trace.losses, reverse=True)


def test_order_of_examples_classes_and_sources_does_not_matter(vit_library: Library) -> None:
    support = pixels_support()
    order = torch.randperm(len(support), generator=torch.Generator().manual_seed(0))
    shuffled = Support.of(support.inputs[order], [("c", "a", "b")[support.labels[index]] for index in order])
    manifest = vit_library.manifest.model_copy(update={"sources": vit_library.manifest.sources[::-1]})
    found = []
    for library, examples in (
        (vit_library, support),
        (vit_library, shuffled),
        (Library(vit_library.folder, manifest), support),
    ):
        live = LiveMixture(library)
        found.append(greedy_soup(live, Task.of(live, examples)).mixture.mean_weights)
    assert found[0] == found[1] == found[2]


def test_one_source_is_its_own_soup(vit_library: Library) -> None:
    alone = vit_library.only([vit_library.manifest.base])
    live = LiveMixture(alone)
    assert greedy_soup(live, Task.of(live, pixels_support())).mixture == Mixture.of({vit_library.manifest.base: 1.0})
