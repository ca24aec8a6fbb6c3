import torch
from hypothesis import given
from hypothesis import strategies as st

from smatter.algebra.simplex import project_to_simplex, truncate
from smatter.algebra.threshold import hard_mask

vectors = st.lists(st.floats(-5, 5), min_size=1, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


@given(vectors)
def test_the_projection_satisfies_its_variational_inequality(vector: torch.Tensor) -> None:
    projected = project_to_simplex(vector)
    assert (projected >= 0).all()
    assert abs(float(projected.sum()) - 1) < 1e-9
    vertices = torch.eye(len(vector), dtype=torch.float64)
    assert ((vertices - projected) @ (vector - projected) <= 1e-9).all()


@given(vectors, st.randoms())
def test_the_projection_moves_with_its_coordinates(vector: torch.Tensor, random) -> None:
    order = list(range(len(vector)))
    random.shuffle(order)
    torch.testing.assert_close(project_to_simplex(vector[order]), project_to_simplex(vector)[order])


def test_batches_are_projected_row_by_row() -> None:
    rows = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    batch = project_to_simplex(rows)
    torch.testing.assert_close(batch[1, 2], project_to_simplex(rows[1, 2]))


@given(vectors, st.integers(1, 12))
def test_truncation_keeps_the_largest_weights_on_the_simplex(vector: torch.Tensor, n_active: int) -> None:
    weights = torch.softmax(vector, 0)
    kept = truncate(weights, n_active)
    assert int((kept > 0).sum()) <= max(n_active, 1)
    assert abs(float(kept.sum()) - 1) < 1e-9
    assert int(kept.argmax()) == int(weights.argmax())


def test_ties_keep_exactly_as_many_as_asked() -> None:
    assert hard_mask(torch.ones(5), 2).tolist() == [1, 1, 0, 0, 0]
