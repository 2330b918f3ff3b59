"""How things look while a person waits: tables and bars for the terminal, and the same in a notebook."""
