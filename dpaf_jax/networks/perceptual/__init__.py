"""Networks that have learnt what to see: from public photographs, or from dead leaves."""
