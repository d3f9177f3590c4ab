"""What is deployed: repositories, pushes, snapshots and versions."""
