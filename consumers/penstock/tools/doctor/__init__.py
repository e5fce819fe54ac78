"""`penstock doctor`: checks each thing that a worker needs, and says how to mend what is wrong."""
