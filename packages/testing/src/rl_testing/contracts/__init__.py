"""Contract suites: an implementer subclasses one, and inherits a test for every promise."""
