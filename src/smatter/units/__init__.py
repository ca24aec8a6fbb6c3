"""The parts of a network that gates switch, and the one way to number them."""
