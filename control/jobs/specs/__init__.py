"""What a job is asked to do: one Struct per job type, each in a file of its own."""
