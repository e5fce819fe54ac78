"""The simulation of several regions, some of which are cut off and helped."""
