"""Policy losses, one a file: ``f(inputs: PolicyLossInputs, config) -> PolicyLossOutputs``, a loss per token."""
