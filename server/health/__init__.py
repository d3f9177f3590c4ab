"""How the loaded versions are: judged every ten seconds by what they answered."""
