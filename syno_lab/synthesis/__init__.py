"""Synthesis of operators: rules, shape distance, enumeration, sampling."""
