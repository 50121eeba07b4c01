"""Published observations, measured anew: scenario files, and the runner that reads them."""
