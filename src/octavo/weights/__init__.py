"""Checkpoints into models: sources of raw tensors, rules that name and reshape them, and a loader that is strict both ways."""
