"""Parts of programs as functions of their own: by patterns, and for code generators of others."""
