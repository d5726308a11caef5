"""A forward pass made into one native call."""

from octavo.compilation.step_program import StepProgram

__all__ = ["StepProgram"]
