"""Reports: turns result files into tables, figures and one page, with the paper's results beside ours."""

from mgrade.report.tables import Row, rows

__all__ = ["Row", "rows"]
