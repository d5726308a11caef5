"""What a model wrote, taken apart: reasoning, content and tool calls as events, the same in a stream and at its end."""
