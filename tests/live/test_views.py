"""Views of one-shot classes: reproducible, modest, and the same for every example."""

import torch

from smatter.live.views import image_views, text_views, token_views


def test_views_of_pictures_are_reproducible_and_modest() -> None:
    pixels = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.avg_pool2d(pixels, 5, 1, 2)
    views = image_views(smooth)
    assert views.shape == (3, 8, 3, 16, 16) and torch.equal(views[:, 0], smooth)
    assert torch.equal(image_views(smooth), views)
    assert not torch.equal(image_views(smooth, generator=torch.Generator().manual_seed(1)), views)
    likeness = torch.cosine_similarity(views[:, 1:].flatten(2), smooth.flatten(1)[:, None], dim=-1)
    strangers = torch.cosine_similarity(views[:1, 1:].flatten(2), smooth[1].flatten(), dim=-1)
    assert float(likeness.min()) > float(strangers.max())
    assert not any(torch.equal(views[:, i], views[:, j]) for i in range(8) for j in range(i))


def test_views_do_not_depend_on_the_other_examples() -> None:
    pixels = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(image_views(pixels[[2, 0]]), image_views(pixels)[[2, 0]])
    texts = ["one two three four", "five six seven eight nine"]
    assert text_views(texts[::-1], 4) == text_views(texts, 4)[4:] + text_views(texts, 4)[:4]


def test_views_of_texts_leave_words_out() -> None:
    text = " ".join(f"word{number}" for number in range(40))
    views = text_views([text, "alone"], 6)
    assert len(views) == 12 and views[0] == text and set(views[6:]) == {"alone"}
    for view in views[1:6]:
        words = view.split()
        assert 20 < len(words) < 40 and set(words) <= set(text.split())
    assert len(set(views[:6])) == 6


def test_views_of_tokens_are_masks() -> None:
    inputs = {"input_ids": torch.arange(20).reshape(1, 20), "attention_mask": torch.ones(1, 20, dtype=torch.int64)}
    inputs["attention_mask"][0, 15:] = 0
    views = token_views(inputs, 5)
    assert views["input_ids"].shape == (5, 20) and torch.equal(views["attention_mask"][0], inputs["attention_mask"][0])
    assert not views["attention_mask"][:, 15:].any() and views["attention_mask"][:, 0].all()
    assert (views["attention_mask"][1:].sum(dim=1) < 15).any()
