"""One HTML file that answers the question, made from records alone."""

from harness.reporting.html import build_report

__all__ = ["build_report"]
