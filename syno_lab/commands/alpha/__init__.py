"""Commands for αNAS alone."""
