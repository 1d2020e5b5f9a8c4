"""Tables for pandas, which is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

    from ._native import Table


def frame(table: Table) -> pandas.DataFrame:
    """The table as a data frame."""
    try:
        import pandas  # noqa: F401: pyarrow needs it, and does not say so
        import pyarrow
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas and pyarrow: pip install pandas pyarrow") from error
    return pyarrow.table(table).to_pandas()
