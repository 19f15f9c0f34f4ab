"""DAPO. Source: Yu et al. 2025, arXiv:2503.14476."""
