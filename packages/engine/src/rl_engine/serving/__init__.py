"""What generation engines share: which requests can be served, and where a response ends."""
