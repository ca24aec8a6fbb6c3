"""What a task's model costs, and what of it a budget allows: numbers in, numbers out."""
