"""Fused layers (`fast = true`): the same mathematics in fewer passes, with other last bits."""
