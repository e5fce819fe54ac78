"""What may never happen, whatever the bytes: one list of targets, run by hypothesis and atheris."""
