"""Pictures of all systems' operators: style, layout, text, formulas, and figures for papers."""
