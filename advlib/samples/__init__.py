"""Small rollout files made for ``advlib demo`` and the tests: one set for each format.

Every reward in them is round and every group has at most six rollouts, so that each number that
the demo prints can be followed by hand.
"""
