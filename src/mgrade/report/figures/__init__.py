"""The figures of the report, each from what has run; a figure of which nothing has run is not drawn."""
