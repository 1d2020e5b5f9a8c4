"""Granule's memory in the shape of other libraries, for programs written for those."""


def __getattr__(name: str) -> object:
    """An adaptor, imported when it is named: each needs its library."""
    import importlib

    module = f"{__name__}.{name}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
