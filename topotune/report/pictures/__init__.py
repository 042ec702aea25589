"""Pictures of results: each module makes one kind of picture from values, none reads files or prints."""
