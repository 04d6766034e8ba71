"""What a run leaves behind: its folder, its numbers, the rollouts it keeps, and the trackers that get them."""
