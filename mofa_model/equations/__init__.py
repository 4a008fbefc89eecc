"""The equations of the cost model: pure functions, one per equation, for scalars and arrays alike."""
