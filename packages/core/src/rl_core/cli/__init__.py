"""The ``rl`` command: one file a subcommand, found through the plugin registry."""
