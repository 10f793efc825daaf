"""Reports: from result files to tables, figures and one page, the paper's beside ours."""

from mgrade.report.tables import Row, rows

__all__ = ["Row", "rows"]
