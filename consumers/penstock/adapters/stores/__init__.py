"""Object stores: which client reads which store, and what all of them share."""
