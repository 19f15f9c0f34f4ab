"""Advantage estimators, one a file: ``f(inputs: AdvantageInputs, config) -> (advantages [B, T], returns [B, T])``."""
