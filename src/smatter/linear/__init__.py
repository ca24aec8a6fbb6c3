"""The convex regime: linear models with a shared parameterisation, thousands of tasks in one batch."""
