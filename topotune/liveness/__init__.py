"""Who is still there: what ranks tell each other of those that die, and how a run then ends."""
