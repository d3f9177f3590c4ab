"""What commits hold: trees, objects and blobs, read by git."""
