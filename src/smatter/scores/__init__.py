"""Numbers in, numbers out: tails, calibration, abstention, hindsight and frontiers, and how sure each of them is."""
