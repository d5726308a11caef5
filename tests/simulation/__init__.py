"""A seeded simulator of the scheduler, with an executor that models the memory behind the pages."""
