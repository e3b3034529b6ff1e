"""Building operators: rules, shape distance, enumeration, sampling."""
