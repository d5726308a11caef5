"""The Anthropic Messages API over the same engine and parts as the OpenAI one."""
