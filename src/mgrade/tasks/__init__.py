"""Tasks: where data comes from, what the model sees, and what counts as right."""
