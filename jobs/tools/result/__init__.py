"""What a tool writes: the version's config, and the report's record of where it comes from."""
