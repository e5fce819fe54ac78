"""The promises that must hold in a simulated world, and the right answers."""
