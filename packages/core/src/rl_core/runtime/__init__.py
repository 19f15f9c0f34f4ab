"""Where workers live. ``local``: in this process. A runtime adds placement to ``single_controller``, nothing else."""
