"""Steps of ``torch.optim`` that decide by the number of the step, written so that both ways are in one graph.

Numbers are float64 as in Python, so that what is added to a parameter is what eager adds.
"""

import torch


def number(tensor):
    """The number in a tensor, which stays in the graph (``values.scalars.number_of``)."""
    return tensor.item()


def _in_reals(tensor):
    return torch.view_as_real(tensor) if torch.is_complex(tensor) else tensor


def single_tensor_asgd(params, grads, axs, mus, etas, state_steps, **options):
    lr, lambd = options["lr"], options["lambd"]
    for param, grad, ax, mu, eta, step_t in zip(params, grads, axs, mus, etas, state_steps, strict=True):
        grad = -grad if options["maximize"] else grad
        param, grad, ax = _in_reals(param), _in_reals(grad), _in_reals(ax)
        step_t += 1
        if options["weight_decay"] != 0:
            grad = grad.add(param, alpha=options["weight_decay"])
        rate = number(eta)
        param.mul_(1 - lambd * rate)
        param.add_(grad, alpha=-rate)
        ax.copy_(torch.where(mu != 1, ax.add(param.sub(ax).mul_(mu)), param))
        step = step_t.double()
        eta.copy_(lr / (1 + lambd * lr * step) ** options["alpha"])
        mu.copy_(1 / (step - options["t0"]).clamp(min=1))


def single_tensor_radam(params, grads, exp_avgs, exp_avg_sqs, state_steps, **options):
    lr = options["lr"]
    beta1, beta2, decay = options["beta1"], options["beta2"], options["weight_decay"]
    most = 2 / (1 - beta2) - 1
    for param, grad, exp_avg, exp_avg_sq, step_t in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        grad = -grad if options["maximize"] else grad
        param, grad, exp_avg, exp_avg_sq = map(_in_reals, (param, grad, exp_avg, exp_avg_sq))
        step_t += 1
        if decay != 0 and options["decoupled_weight_decay"]:
            param.mul_(1 - lr * decay)
        elif decay != 0:
            grad = grad.add(param, alpha=decay)
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        step = step_t.double()
        second = 1 - beta2**step
        length = most - 2 * step * beta2**step / second
        is_long = length > 5.0
        squared = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        rectified = number(torch.where(is_long, squared, 1.0).sqrt())
        update = exp_avg / number(1 - beta1**step) * lr
        adapted = update * (number(second.sqrt()) / exp_avg_sq.sqrt().add(options["eps"])) * rectified
        param.add_(torch.where(is_long, adapted, update), alpha=-1.0)
