"""What stands between a program and code that it does not trust: the launcher of the sandbox, and what it asks of the kernel.

Runs as ``python -I -S``, once for every answer that is judged, so its modules import only what costs next to nothing: no
``typing``, ``dataclasses``, ``signal``, ``json`` or ``pathlib``, whose imports take longer than all of a sandbox's set-up.
Everything here is trusted; what a response wrote becomes a process in ``drop`` alone, after every right was taken from it.
"""
