"""What is measured: one file each, with a function from a Plan to what goes into the Report."""
