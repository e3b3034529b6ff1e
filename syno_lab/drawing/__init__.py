"""Pictures of any operator: style, layout, text, formulas, and figures for papers."""
