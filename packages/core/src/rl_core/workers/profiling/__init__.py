"""Recordings of single steps on single workers, one file a tool."""
