"""How far may a partition's position be committed, and what is already delivered beyond it?"""
