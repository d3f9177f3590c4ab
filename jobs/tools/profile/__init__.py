"""Profile: search the settings that serve a version best, on a server of its own."""
