"""Which version answered a request: of the last ones, by their ids."""
