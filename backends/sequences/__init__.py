"""What an instance needs to serve sequences: control inputs, and the states it keeps for them."""
