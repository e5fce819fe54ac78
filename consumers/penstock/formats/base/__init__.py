"""What all formats share: runs of rows, members of archives, options, and reading an object in
parts.
"""
