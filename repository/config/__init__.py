"""`config.pbtxt`: read, completed, and checked, with the place of every finding."""
