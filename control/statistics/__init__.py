"""Mathematics of comparing arms: intervals that may be looked at always, quantiles, corrections."""
