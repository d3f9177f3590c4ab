"""The process in which one job works: confined, bounded, watched, and explained when it ends."""
