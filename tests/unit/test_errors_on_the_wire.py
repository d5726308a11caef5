"""An error that another process raised arrives as the class that it was."""

from __future__ import annotations

import pytest

from octavo.lib.errors import OctavoError, error_from_wire


def _classes(cls: type[OctavoError]) -> list[type[OctavoError]]:
    return [child for direct in cls.__subclasses__() for child in (direct, *_classes(direct))]


@pytest.mark.parametrize("cls", _classes(OctavoError), ids=lambda cls: cls.__name__)
def test_every_class_is_rebuilt(cls: type[OctavoError]) -> None:
    error = error_from_wire(cls.error_type, "tensor q is missing", "model")
    assert type(error) is cls
    assert (str(error), error.message, error.param) == ("tensor q is missing", "tensor q is missing", "model")


def test_an_unknown_type_is_the_root() -> None:
    assert type(error_from_wire("of_tomorrow", "new")) is OctavoError
    assert type(error_from_wire(None, "new")) is OctavoError
