"""The figures of the report, drawn from the runs there are; a figure without any run is not drawn."""
