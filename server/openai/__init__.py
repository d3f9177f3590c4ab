"""OpenAI's API for language models, on REST's port: chat, completions, embeddings, tokens."""
