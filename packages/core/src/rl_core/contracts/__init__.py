"""The few contracts that independently versioned packages share.

Types only: nothing here imports torch, ray or an engine when it is loaded. One idea a file; each abstract
class has a contract suite in ``rl-testing`` that an implementation must pass.

===================  ==========================================================================
``engine``           ``TrainingEngine``: one role's model, its optimizer and its weight stream
``rollout``          ``RolloutEngine``: token in, token out, asynchronous; and its weight sinks
``resharding``       ``Resharding``: hands the weights of the one to the other, around generation
``weights``          manifest, bucket and digest: what travels between the two
``reward``           reward functions and the manager that runs many of them
``agent_loop``       a conversation with tools or an environment that ends in a trajectory
``mini_batch``       which rows make one optimizer step, with the totals of the whole mini-batch
``stateful``         what has to be saved so that a resumed run goes on exactly
===================  ==========================================================================
"""
