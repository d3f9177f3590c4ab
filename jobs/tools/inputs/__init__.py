"""What a network is run on: the rows of a data file, and rows that are made up."""
