"""Methods x tasks -> scores: how well each way to adapt does on somebody's own data, beside all others."""
