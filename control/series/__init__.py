"""Time series of what was served: kept in three levels, read for charts."""
