"""How often a rollout's policy decides rightly, and wrongly: simulated runs on a shared machine."""
