"""What is published, under which name?"""
