"""Files of requests, as OpenAI's Batch API has them: JSON lines in, JSON lines out."""
