"""The OpenAI-compatible routes: Chat Completions and Responses, on sessions and without."""
