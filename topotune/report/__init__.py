"""What people read: results as text. Everything here returns strings; only the command line prints."""
