"""Reports: from result files to tables, the paper's figures beside ours."""

from mgrade.report.tables import Row, rows

__all__ = ["Row", "rows"]
