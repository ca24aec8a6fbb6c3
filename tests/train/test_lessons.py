"""Workers are started whole, whatever signals come meanwhile."""

import signal

import pytest

from smatter.train.lessons import signals_wait


def test_a_signal_waits_until_a_block_is_through() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), signals_wait():
        signal.raise_signal(signal.SIGINT)
        done.append("the block")
    assert done == ["the block"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
