"""Rows to prompts: reading files, rendering chat templates, drawing batches in a repeatable order."""
