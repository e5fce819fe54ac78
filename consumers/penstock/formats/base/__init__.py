"""What all formats share: runs of rows, members, options, reading by parts."""
