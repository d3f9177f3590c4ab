"""Results of jobs: what lies in a job's output folder becomes a version, once."""
