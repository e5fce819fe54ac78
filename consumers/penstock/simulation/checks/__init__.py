"""What must hold in a simulated world, and what is true of it."""
