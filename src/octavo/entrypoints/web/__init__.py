"""The page at `/`: chat, a view of tokens, and the live engine. Static files; nothing is built and no other host is asked."""
