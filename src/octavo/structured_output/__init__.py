"""Answers of a given shape: schemas, expressions and grammars as masks over the vocabulary. Never loads torch by itself."""
