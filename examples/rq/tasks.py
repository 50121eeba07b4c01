"""What the workers of RQ run."""


def render(title: str) -> str:
    return f"<h1>{title}</h1>"
