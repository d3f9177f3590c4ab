"""REST's OpenAPI document: its table of paths, its schemas, and the page that shows it."""
