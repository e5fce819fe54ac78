"""What is wrong with a worker, why, and what can a person do about it?"""
