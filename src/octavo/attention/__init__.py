"""What attention needs to know about a step: which rows belong to which sequence, and where its pages lie."""
