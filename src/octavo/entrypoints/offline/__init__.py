"""Models in a script: class `LLM`."""
