"""Two support sets with the same contents are the same task, in whatever order."""

from dataclasses import replace

import torch

from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.tasks.support import Support


def reordered(support: Support) -> Support:
    """Examples backwards, classes numbered backwards."""
    order = range(len(support) - 1, -1, -1)
    last = len(support.class_names) - 1
    inputs = tuple(support.inputs[index] for index in order)
    return Support(
        inputs if support.kind == "texts" else support.inputs.flip(0),  # type: ignore[union-attr]
        tuple(last - support.labels[index] for index in order),
        support.class_names[::-1],
        support.kind,
    )


def test_order_does_not_matter_and_contents_do(task: tuple[Library, Support]) -> None:
    library, support = task
    live = LiveMixture(library)
    one, other = Task.of(live, support), Task.of(live, reordered(support))
    assert one.digest == other.digest and one.class_names == other.class_names
    assert torch.equal(one.objective.classes, other.objective.classes)
    for name, tensor in one.objective.inputs.items():
        assert torch.equal(tensor, other.objective.inputs[name])
    swapped = (support.labels[-1], *support.labels[1:-1], support.labels[0])
    assert Task.of(live, replace(support, labels=swapped)).digest != one.digest


def test_names_of_classes_do_not_matter(task: tuple[Library, Support]) -> None:
    library, support = task
    live = LiveMixture(library)
    renamed = replace(support, class_names=tuple(f"other {name}" for name in support.class_names))
    assert Task.of(live, renamed).digest == Task.of(live, support).digest
