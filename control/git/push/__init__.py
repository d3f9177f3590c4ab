"""A push: received as files, examined while the pusher watches, accepted or refused."""
