"""Chat templates: found, checked, and rendered in a process of their own."""
