"""Time series, on the gateway's side: what was counted every ten seconds, until it is stored."""
