"""Snippets that torch's own Dynamo captures in one graph and torchmux does not for now: name -> reason."""

NOT_YET: dict[str, str] = {
    "default_dtype": "a graph is made under one default dtype; changing it in the middle ends the graph",
}
