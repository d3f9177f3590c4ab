"""Grammars that answers must follow, as requests write them and as engines compile them."""
