"""Runs that train one model on the rows of a file: what ``rl sft`` and ``rl rm`` have in common."""
