"""Which network interface ranks use: what each node has, what reaches the others, one choice for each."""
