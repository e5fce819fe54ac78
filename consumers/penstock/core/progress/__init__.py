"""What of a partition may be fetched, published and committed now, and when does a line stop?"""
