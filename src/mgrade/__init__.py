"""mgrade."""
