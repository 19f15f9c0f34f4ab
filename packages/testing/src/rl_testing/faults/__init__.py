"""Planted faults: implementations that break one promise each, to prove that the suites notice."""
