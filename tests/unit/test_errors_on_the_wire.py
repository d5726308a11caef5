"""An error that another process raised arrives as the class that it was."""

from __future__ import annotations

import pytest

from octavo.lib import errors
from octavo.lib.errors import OctavoError, error_from_wire

# Those with a type of their own: a layer's own subclass (a grammar's error) shares its parent's, and arrives as that.
_CLASSES = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, OctavoError) and cls is not OctavoError
]


@pytest.mark.parametrize("cls", _CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_is_rebuilt(cls: type[OctavoError]) -> None:
    error = error_from_wire(cls.error_type, "tensor q is missing", "model")
    assert type(error) is cls
    assert (str(error), error.message, error.param) == ("tensor q is missing", "tensor q is missing", "model")


def test_an_unknown_type_is_the_root() -> None:
    assert type(error_from_wire("of_tomorrow", "new")) is OctavoError
    assert type(error_from_wire(None, "new")) is OctavoError


def test_every_type_is_one_class() -> None:
    assert len({cls.error_type for cls in _CLASSES}) == len(_CLASSES) > 10


def test_a_class_without_a_type_of_its_own_arrives_as_its_parent() -> None:
    class _OneLayersError(errors.InvalidRequestError):
        pass

    assert type(error_from_wire(_OneLayersError.error_type, "no such rule")) is errors.InvalidRequestError
