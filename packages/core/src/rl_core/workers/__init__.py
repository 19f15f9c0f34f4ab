"""Role workers: what a worker process hosts. Built from contracts; engines are found by name."""
