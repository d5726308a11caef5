"""Octavo beside its peers: each installed in a folder of its own, measured in turns, printed as ratios."""
