"""How one request ended."""


class Refused(Exception):
    """An error in words; the message has them."""


class Wrong(Exception):
    """An answer that is not the model's; the message says what came instead."""


class Lost(Exception):
    """The connection ended without an answer although the server was there."""


class Hung(Exception):
    """No answer within the deadline of the client."""


OUTCOMES = ("right", "refused", "cancelled", "wrong", "lost", "hung")
