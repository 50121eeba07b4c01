"""Parts for frameworks: each needs its framework, and nothing else of Milepost needs them."""
