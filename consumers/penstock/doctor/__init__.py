"""`penstock doctor`: what a worker needs, looked at one by one."""
