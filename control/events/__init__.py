"""What has happened: events and audit, and who waits for the next event."""
