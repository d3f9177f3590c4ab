"""What an ensemble decides, without a clock, a loop or I/O."""
