"""The index of what was said and noted: what a query means, how hits are ranked, on both databases."""
