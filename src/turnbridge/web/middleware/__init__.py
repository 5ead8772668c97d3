"""What happens to every request around its route."""
