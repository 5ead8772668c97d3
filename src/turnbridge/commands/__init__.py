"""The commands besides `serve`, a module for each group of them."""
