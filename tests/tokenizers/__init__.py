"""What the tests of tokenizers share, and those that need downloads."""
