"""How convx's binaries are built; used by setup.py alone."""
