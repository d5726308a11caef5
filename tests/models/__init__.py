"""Whole models, tiny and random, held to `transformers`; and the default model held to llama.cpp."""
