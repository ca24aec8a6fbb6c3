"""`smatter demo`."""


def demo() -> None:
    """The whole story on shipped data."""
