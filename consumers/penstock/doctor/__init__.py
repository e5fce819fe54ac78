"""`penstock doctor`: checks each thing that a worker needs, and says what mends it."""
