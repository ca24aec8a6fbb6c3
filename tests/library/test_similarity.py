"""Distances of sources from their inner products, against the tensors themselves."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_libraries import random_library, tiny_bert, tiny_vit
from transformers import PreTrainedModel

from smatter.library.check import check_library
from smatter.library.library import Library
from smatter.library.similarity import Similarity


def similarity_of(library: Library) -> Similarity:
    found = check_library(library).similarity
    assert found
    return found


@pytest.mark.parametrize("model", [tiny_vit(), tiny_bert()], ids=["vit", "bert"])
@pytest.mark.parametrize(("n_sources", "spread"), [(2, 0.3), (4, 0.05)])
def test_scatter_is_that_of_the_sources_around_their_mean(
    model: PreTrainedModel, n_sources: int, spread: float, tmp_path: Path
) -> None:
    library = random_library(tmp_path, model, n_sources, spread=spread)
    read = [load_file(tmp_path / name / "model.safetensors") for name in library.names]
    partition = library.partition.modules.values()
    matrices = [[name for name in module if read[0][name].ndim > 1] or module for module in partition]
    sources = np.array(
        [np.concatenate([each[name].ravel() for module in matrices for name in module]) for each in read], np.float64
    )
    mean = sources.mean(axis=0)
    apart = np.sqrt(((sources - mean) ** 2).sum(axis=1).mean())
    assert similarity_of(library).scatter == pytest.approx(apart / np.linalg.norm(mean), rel=1e-9)


def test_copies_of_the_base_do_not_scatter(tmp_path: Path) -> None:
    assert similarity_of(random_library(tmp_path, tiny_bert(), spread=0.0)).scatter == 0
