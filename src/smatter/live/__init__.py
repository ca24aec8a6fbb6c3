"""One network in memory, what a task asks of it, and its loss as problems of the solver."""
