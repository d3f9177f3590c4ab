"""How answers to clients of the OpenAI API are collected and written."""
