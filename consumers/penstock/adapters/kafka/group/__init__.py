"""What a member owes its consumer group and may expect of it; both clients use this."""
