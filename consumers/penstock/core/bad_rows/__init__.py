"""Which rows of a failed batch were at fault?"""
