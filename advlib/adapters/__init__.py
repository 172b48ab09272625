"""Rollout files in, one Arrow table out; and back."""
