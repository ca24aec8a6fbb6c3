"""What happens to a task between its fit and its model: budgets, the choice of a single source, drift."""
