"""From a checkpoint's configuration to a spec (no torch), and from a spec and weights to a running decoder."""
