"""Snippets that torch's own Dynamo captures in one graph and torchmux does not for now: name -> reason."""

NOT_YET: dict[str, str] = {}
