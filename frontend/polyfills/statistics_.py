"""``torch.cov`` and ``torch.corrcoef`` without weights: torch's own ask data about the weights, even where none are."""


def cov(tensor, correction=1):
    rows = tensor if tensor.dim() == 2 else tensor.reshape(1, -1)
    count = rows.size(1)
    apart = rows - (rows.sum(1) / count).unsqueeze(1)
    return (apart @ apart.t() / (count - correction)).squeeze()


def corrcoef(tensor):
    covariance = cov(tensor)
    if covariance.dim() == 0:
        return covariance / covariance
    deviation = covariance.diag().sqrt()
    return (covariance / deviation.view(-1, 1) / deviation.view(1, -1)).clip(-1, 1)
