"""The entry points of the installed commands; everything else is in the packages beside it."""
