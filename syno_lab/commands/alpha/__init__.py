"""Commands for αNAS only."""
