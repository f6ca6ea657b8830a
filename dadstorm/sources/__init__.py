"""Sources: where records come from and how they get their seqs."""
