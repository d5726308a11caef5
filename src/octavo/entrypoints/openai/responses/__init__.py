"""The Responses API: items to a conversation, an answer to events, responses kept and made in the background."""
