"""One controller, many workers: methods of a worker class become methods of a group that split and gather a batch."""
