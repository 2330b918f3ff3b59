"""One trial, from a configuration to a trained network, its measures and its cost. Knows neither Ray nor MLflow.

What is private of torch's here, and what happens in a torch that lacks it:

| name | in | for what | | without it |
| --- | --- | --- | --- | --- |
| torch._fused_sgd_ | sgd.py | a step in a fifth of the time | required | no trial trains |
| _step_supports_amp_scaling (GradScaler) | sgd.py | scaled gradients | required | float16 diverges |
| torch.utils._python_dispatch | cost.py | counts operations without torch's compiler | required | no trial starts |
| _should_skip_dynamo (of its modes) | cost.py | the same | optional | a second more per worker |
| nn.Module._compiled_call_impl, _call_impl | compiling.py | goes on without a compiler | required | one sentence |
| torch._dynamo, _functorch, _inductor | compiling.py | limits, a phase of its own | required | one sentence |

The last two only where `training.compile` is set. The others are tested against torch's own optimiser and counter.
"""
