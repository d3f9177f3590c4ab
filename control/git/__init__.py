"""Git on the admin port: pushes come in, are checked while the pusher watches, and deployed."""
